"""The foreseen peak of a training step lies within a tenth of what torch.profiler sees of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.slow]

HERE = Path(__file__).parent
TENTH = 0.10
CASES = {
    "resnet50": ("torchvision.models.resnet50", (8, 3, 224, 224), (8,)),
    "vit_b_16": ("torchvision.models.vit_b_16", (4, 3, 224, 224), (4,)),
    "unet": ("steps.UNet", (4, 3, 128, 128), (4, 128, 128)),
}


def measured(kind: str, case: str) -> dict[str, Any]:
    """Run one side in a process of its own: steps.py says how."""
    command = [sys.executable, str(HERE / "steps.py"), kind, json.dumps(CASES[case])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("case", CASES)
def test_peak_is_that_of_the_profiler(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchvision")
    seen, foreseen = measured("profiled", case), measured("foreseen", case)
    off = foreseen["peak"] / seen["peak"] - 1
    with capsys.disabled():
        print(
            f"\n{case}: profiler {seen['peak'] / 2**20:.0f} MiB, foreseen "
            f"{foreseen['peak'] / 2**20:.0f} MiB ({off:+.1%}) in {foreseen['seconds']:.1f} s of CPU"
        )
    assert abs(off) <= TENTH
