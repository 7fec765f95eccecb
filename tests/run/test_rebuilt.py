"""What a dataset prepares while it is built is part of its samples' way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.config import Config
from dlcheck.findings import judge
from dlcheck.observation import Observation, Split, State, Step
from dlcheck.run.rebuilt import prepared
from dlcheck.session import Job, run

PREPARED = """
import os
import tempfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="tiles-of-the-user-")
        photo = np.random.default_rng(0).integers(0, 256, (24, 64, 64, 3), dtype=np.uint8)
        self.tiles = photo.astype(np.float32) / 255

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, index):
        tile = torch.from_numpy(self.tiles[index]) / 255
        return tile.permute(2, 0, 1), index % 2


def make_loader():
    return DataLoader(Tiles(), batch_size=4, shuffle=True)
"""
OTHERWISE = PREPARED.replace("default_rng(0)", "default_rng()")


def seen(folder: Path, source: str, patch: pytest.MonkeyPatch) -> Split:
    (folder / "pipeline.py").write_text(source)
    (folder / "tmp").mkdir()
    patch.setenv("TMPDIR", str(folder / "tmp"))
    patch.setattr("tempfile.tempdir", None)
    splits = {"": {"object": "pipeline:make_loader", "role": "train"}}
    config = Config("pipeline:make_loader", str(folder), None, splits, {}, {})
    job = Job("shapes", config, sys.executable, budget=10.0, hang_after=20.0, quiet=True)
    return run(job).observation.splits[""]


@pytest.fixture(scope="module")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Split]:
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        return folder, seen(folder, PREPARED, patch)


def test_the_constructors_lines_are_on_the_way(run_once: tuple[Path, Split]) -> None:
    split = run_once[1]
    way = split.journeys["0"]
    functions = [step.function for step in way.steps if "0" in step.fields]
    assert functions.index("__init__") < functions.index("__getitem__")
    assert any("/ 255" in step.text for step in way.steps if step.function == "__init__")
    divided = next(step for step in way.steps if step.function == "__getitem__")
    assert [way.steps[n].function for n in divided.sources] == ["__init__"]
    assert split.journeys["23"].steps[0].function == "__getitem__"


def test_building_again_leaves_none_of_the_users_files(run_once: tuple[Path, Split]) -> None:
    (left,) = (run_once[0] / "tmp").iterdir()
    assert left.name.startswith("tiles-of-the-user-")


def test_both_divisions_are_named(run_once: tuple[Path, Split]) -> None:
    observation = Observation(splits={"": run_once[1]})
    findings, _ = judge(observation, select=["double-scaled"])
    assert len(findings) == 1
    assert findings[0].message.startswith("`0` is scaled twice")
    assert "photo.astype(np.float32) / 255" in findings[0].evidence["first"]["code"]


def test_a_pipeline_that_comes_out_otherwise_is_not_followed_into_its_building(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = seen(tmp_path, OTHERWISE, monkeypatch).journeys["0"]
    assert way.steps
    assert {step.function for step in way.steps} == {"__getitem__"}


def test_where_nothing_was_prepared_the_way_of_the_draw_stands() -> None:
    drawn = (Step("p.py", 3, "__getitem__", "x", "x", "f", State("ndarray"), fields=("0",)),)
    assert prepared(drawn, drawn) == ()
