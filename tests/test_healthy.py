"""The false-alarm hunt: healthy pipelines in the habits of public projects draw no accusation."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HEALTHY = sorted((Path(__file__).parent / "healthy").glob("*.py"))
STEP = "training_step"
RunDlcheck = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="the pipelines are PyTorch code"
)


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_healthy_pipeline_draws_no_accusation(
    path: Path, tmp_path: Path, run_dlcheck: RunDlcheck
) -> None:
    """Silent at warning and above, and the verdict is pass; a step is named where there is one."""
    target = f"{path}:make_loader"
    if STEP in path.read_text(encoding="utf-8"):
        config = tmp_path / "dlcheck.yaml"
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        config.write_text(f"loader: {path.stem}:make_loader\nstep: {path.stem}:{STEP}\n")
        target = str(config)
    done = run_dlcheck("shapes", target, "--format", "json", "--budget", "10s")
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    assert [f for f in said["findings"] if f["severity"] != "note"] == []
    assert said["verdict"] == "pass", said["rules"]
