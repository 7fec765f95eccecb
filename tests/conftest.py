"""Fixtures that several test files share: running the real tool, and where the checkout is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

ROOT = Path(__file__).resolve().parents[1]


class RunDlcheck(Protocol):
    """Run `python -m dlcheck ARGS` in `cwd` and wait for it, `timeout` seconds at most."""

    def __call__(
        self,
        *args: str | os.PathLike[str],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout, where README.md and sample_configs lie."""
    return ROOT


@pytest.fixture(autouse=True)
def _not_on_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own CI must not be taken for the user's, which gets annotations and a summary."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def no_device_faked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep fake tensors from telling autograd of a GPU that is not there, for good.

    Autograd starts a thread for it, and no later fork of this process could run a backward.
    """
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch._C, "_ensureCUDADeviceGuardSet", lambda: None, raising=False)


@pytest.fixture
def run_dlcheck(tmp_path: Path) -> RunDlcheck:
    """The real tool as a subprocess, from any folder; the test's own folder unless told."""

    def run(
        *args: str | os.PathLike[str],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dlcheck", *args],
            cwd=cwd or tmp_path,
            env=_plain_environment() | dict(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )

    return run


def _plain_environment() -> dict[str, str]:
    """This process's environment, less what changes a report: width, colour, the CI's own name."""
    telling = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "GITHUB_ACTIONS"}
    plain = {name: value for name, value in os.environ.items() if name not in telling}
    plain["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    return plain
