"""The checks that need a CUDA device, which are those of tests/gpu_run.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import gpu_run

WHY = gpu_run.missing_device()


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(bool(WHY), reason=f"needs a CUDA device: {WHY}")
@pytest.mark.parametrize("check", gpu_run.CHECKS, ids=lambda check: check.__name__)
def test_device_does_as_expected(check: Callable[[], gpu_run.Seen]) -> None:
    result = check()
    assert result.agrees, f"expected {result.expected}\nseen     {result.seen}"


@pytest.mark.skipif(not WHY, reason="there is a device here")
def test_the_script_says_that_it_ran_nothing() -> None:
    """A script that runs nothing must not look like one that found all in order."""
    script = Path(gpu_run.__file__)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stdout == f"nothing was run: {WHY}\n"
