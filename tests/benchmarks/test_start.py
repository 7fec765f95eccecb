"""dlcheck starts at once, and a run takes little more than what it runs."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).resolve().parents[2]
TIMES = 7
PLAIN = """
import torch
from dlcheck_sample import make_loader
loader = make_loader()
for _ in range(2):
    for batch in loader:
        pass
"""
SAMPLE = """
import sys
sys.path.insert(0, {folder!r})
import torch
from torchvision.transforms import v2
from shape_folder import ShapeFolder

def make_loader():
    stages = [
        v2.ToImage(), v2.RandomResizedCrop(64, scale=(0.5, 1.0)), v2.RandomHorizontalFlip(),
        v2.ColorJitter(brightness=0.4, contrast=0.4), v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]
    dataset = ShapeFolder(transform=v2.Compose(stages))
    return torch.utils.data.DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
"""


def cpu(command: list[str], cwd: Path | None = None, times: int = TIMES) -> float:
    """CPU seconds of a command and of all that it starts and waits for: the median of some runs."""
    took = []
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            command, env=environment, cwd=cwd, check=True, capture_output=True, stdin=None
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(took)


@pytest.fixture(scope="module")
def import_torch() -> float:
    pytest.importorskip("torch")
    return cpu([sys.executable, "-c", "import torch"])


@pytest.mark.parametrize("arguments", [["--help"], ["explain", "ragged-batch"]], ids=" ".join)
def test_help_takes_a_small_part_of_importing_torch(
    arguments: list[str], import_torch: float, capsys: pytest.CaptureFixture[str]
) -> None:
    took = cpu([sys.executable, "-m", "dlcheck", *arguments])
    with capsys.disabled():
        share = took / import_torch
        print(f"\n{' '.join(arguments)}: {took:.3f} CPU s, {share:.3f} x import torch")
    assert took < 0.15 * import_torch


def test_the_sample_takes_little_more_than_a_plain_loop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torchvision")
    pytest.importorskip("cv2")
    folder = ROOT / "sample_configs"
    (tmp_path / "dlcheck_sample.py").write_text(SAMPLE.format(folder=str(folder)))
    (tmp_path / "plain.py").write_text(PLAIN)
    ours = [sys.executable, "-m", "dlcheck", "shapes", str(folder)]
    plain = [sys.executable, str(tmp_path / "plain.py")]
    subprocess.run(plain, check=True, capture_output=True)
    pairs = [(cpu(plain, tmp_path, 1), cpu(ours, ROOT, 1)) for _ in range(TIMES)]
    ratio = statistics.median(b / a for a, b in pairs)
    with capsys.disabled():
        middle = [statistics.median(side) for side in zip(*pairs, strict=True)]
        print(f"\nplain {middle[0]:.2f} CPU s, dlcheck {middle[1]:.2f}: {ratio:.2f} x")
    assert ratio < 1.5
