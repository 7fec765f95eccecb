"""Where fork is not to be had the probe is a process of its own, and tells the same."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")

from dlcheck.config import Config
from dlcheck.session import Job, run

PIPELINE = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

TILES = np.random.default_rng(0).integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)


class Tiles(Dataset):
    def __len__(self):
        return len(TILES)

    def __getitem__(self, index):
        tile = torch.from_numpy(TILES[index]).float()
        if index == 7:
            raise ValueError("tile 7 is torn")
        return tile / 255, index


def make_loader():
    return DataLoader(Tiles(), batch_size=4)
"""


def test_journeys_and_redraws_come_from_a_fresh_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "sitecustomize.py").write_text("import os\ndel os.fork\n")
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    splits = {"": {"object": "pipeline:make_loader", "role": "train"}}
    config = Config("pipeline:make_loader", str(tmp_path), None, splits, {}, {})
    job = Job("shapes", config, sys.executable, budget=10.0, hang_after=20.0, quiet=True)
    seen = run(job).observation
    split = seen.splits[""]
    assert seen.settings["probe"] == ""
    assert split.samples == 8
    torn = split.journeys["7"]
    assert torn.reproduced
    assert torn.failure is not None
    assert "tile / 255" in split.journeys["0"].steps[-1].text
    with contextlib.suppress(psutil.NoSuchProcess):
        # Where nobody waits for orphans its entry stays.
        assert psutil.Process(seen.settings["probe_pid"]).status() == psutil.STATUS_ZOMBIE
