"""`dlcheck leak` from the command line: whatever ends it, what was measured by then is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

PIPELINE = """
import os
import time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

kept = []

class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.zeros(8)

class Dying(Dataset):
    def __init__(self):
        self.drawn = 0
    def __len__(self):
        return 12
    def __getitem__(self, index):
        self.drawn += 1
        if self.drawn > 15:
            os._exit(7)
        return torch.zeros(8)

def step(batch):
    time.sleep(0.002)
    kept.append(bytearray(20_000))

def endless():
    return DataLoader(Endless(), batch_size=2)

def dying():
    return DataLoader(Dying(), batch_size=2, num_workers=1, persistent_workers=True)
"""


@pytest.fixture
def project() -> Iterator[Path]:
    """A project in a short folder: the scratch folder stands in its `tmp`."""
    with tempfile.TemporaryDirectory(prefix="leak-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        (folder / "pipeline.py").write_text(PIPELINE)
        (folder / "dlcheck.yaml").write_text("loader: pipeline:endless\nstep: pipeline:step\n")
        yield folder


def leak(project: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dlcheck", "leak", *args, "--format", "json", "-q"],
        cwd=project, env={**os.environ, "TMPDIR": str(project / "tmp")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def processes(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = report["observation"]["splits"][""]["processes"]
    return found


def test_an_interrupted_run_says_what_it_saw(project: Path) -> None:
    run = leak(project, "--budget", "90s")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        written = [path.read_text() for path in project.glob("tmp/dlcheck-*/obs-*")]
        if any('"at":"within"' in text for text in written):
            break
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=60)
    report = json.loads(out)
    assert run.returncode == 128 + signal.SIGINT
    assert report["observation"]["cut"] == "interrupted by SIGINT"
    main = processes(report)["main"]
    assert [mark.get("at", "within") for mark in main["marks"]][:2] == ["begin", "within"]
    assert len(main["points"]) > 5


def test_epochs_of_so_many_batches_are_compared_and_the_step_is_called(project: Path) -> None:
    run = leak(project, "--epochs", "2", "--epoch-batches", "10", "--fail-on", "never")
    report = json.loads(run.communicate(timeout=100)[0])
    split = report["observation"]["splits"][""]
    ends = [mark for mark in split["processes"]["main"]["marks"] if mark.get("at") == "end"]
    assert (split["epochs_wanted"], split["epoch_batches"]) == (2, 10)
    assert [mark["batches"] for mark in ends[:2]] == [10, 20]
    assert 180_000 < ends[1]["heap"] - ends[0]["heap"] < 230_000
    assert {finding["rule"] for finding in report["findings"]} >= {"host-leak"}


def test_a_worker_that_dies_leaves_its_counters_and_a_failure(project: Path) -> None:
    run = leak(project, "pipeline.py:dying")
    report = json.loads(run.communicate(timeout=100)[0])
    worker = processes(report)["w0"]
    assert report["verdict"] == "fail"
    assert [mark["samples"] for mark in worker["marks"] if mark.get("at") == "end"] == [12]
    assert report["observation"]["splits"][""]["epochs"] == 2
