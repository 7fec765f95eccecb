"""`expect:` goes into the config that was run, and into nothing else of it."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck import cli, config, freeze, session
from dlcheck.config import UserError
from dlcheck.observation import Failure, Field, Loader, Observation, Split, Tally
from dlcheck.session import Outcome

CONFIG = """\
# cats
dataset: {_target_: cats.Cats}  # the folder
loader: {batch_size: 8}
"""
SPLIT = CONFIG + "splits:\n  train: {}\n  val:\n    loader: {batch_size: 4}  # small\n"
IMAGE = {"image": {"shape": [3, 64, 64], "dtype": "float32"}}
SMALL = {"image": {"shape": [3, 32, 32], "dtype": "float32"}}


@pytest.fixture
def written(tmp_path):
    """Write a config, put expectations into it, and return its text and what changed."""
    path = tmp_path / "dlcheck.yaml"

    def run(text: str, found: dict) -> tuple[str, list[str]]:
        path.write_bytes(text.encode())
        changed = freeze.write(config.load(str(path)), found)
        assert list(tmp_path.iterdir()) == [path]
        return path.read_bytes().decode(), changed

    return run


def test_a_new_expect_stands_at_the_end(written):
    text, changed = written(CONFIG, {"": IMAGE})
    expect = "expect:\n  image: {shape: [3, 64, 64], dtype: float32}\n"
    assert text == CONFIG + expect
    assert changed == ["expect"]


def test_a_second_time_changes_nothing(written):
    text, _ = written(CONFIG, {"": IMAGE})
    assert written(text, {"": IMAGE}) == (text, [])


def test_only_what_differs_is_touched(written):
    old = CONFIG + "expect:\n  image: {shape: [3, 32, 32], dtype: float32}  # of 2021\n"
    text, changed = written(old, {"": IMAGE})
    assert text == old.replace("[3, 32, 32]", "[3, 64, 64]")
    assert changed == ["expect.image.shape"]


def test_an_interpolation_that_holds_is_left_as_the_user_wrote_it(written):
    old = CONFIG + "expect:\n  label: {classes: '${oc.decode:${oc.env:NO_SUCH,3}}'}\n"
    text, changed = written(old, {"": {"label": {"classes": 3, "dtype": "int64"}}})
    assert text == old.replace("3}}'}", "3}}', dtype: int64}")
    assert changed == ["expect.label.dtype"]


def test_splits_alike_share_one_expect(written):
    text, changed = written(SPLIT, {"train": IMAGE, "val": IMAGE})
    assert changed == ["expect"]
    assert text.startswith(SPLIT)


def test_splits_that_differ_have_one_each(written):
    text, changed = written(SPLIT, {"train": IMAGE, "val": SMALL})
    assert changed == ["splits.train.expect", "splits.val.expect"]
    assert "  train: {expect: {image: {shape: [3, 64, 64], dtype: float32}}}\n" in text
    assert "    loader: {batch_size: 4}  # small\n    expect:\n      image: {shape: [3, 32" in text


def test_one_split_alone_leaves_the_others(written):
    text, changed = written(SPLIT, {"val": SMALL})
    assert changed == ["splits.val.expect"]
    assert "  train: {}\n" in text


def test_other_line_ends_are_kept(written):
    text, _ = written(CONFIG.replace("\n", "\r\n"), {"": IMAGE})
    assert text.count("\n") == text.count("\r\n") == 5


def test_a_config_of_one_line(written):
    text, _ = written("{dataset: {_target_: cats.Cats}}", {"": IMAGE})
    assert text.endswith(", expect: {image: {shape: [3, 64, 64], dtype: float32}}}")


def test_what_cannot_be_changed_safely_is_left_alone(tmp_path):
    """Here two splits are one text, and would have to differ."""
    path = tmp_path / "dlcheck.yaml"
    text = CONFIG + "splits:\n  train: &all {expect: {image: {shape: [3, 8, 8]}}}\n  val: *all\n"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        freeze.write(config.load(str(path)), {"train": IMAGE, "val": SMALL})
    assert path.read_text() == text
    assert "splits:\n  train:\n    expect:" in caught.value.hint
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path):
    real = tmp_path / "real.yaml"
    real.write_text(CONFIG)
    link = tmp_path / "dlcheck.yaml"
    link.symlink_to(real)
    freeze.write(config.load(str(link)), {"": IMAGE})
    assert link.is_symlink()
    assert "expect:" in real.read_text()


def test_frozen_without_the_last_expect(tmp_path):
    path = Path(tmp_path, "dlcheck.yaml")
    path.write_text(CONFIG + "expect: {image: {shape: [1]}}\n")
    loaded = config.load(str(path))
    assert "expect" not in freeze.unbound(loaded).splits[""]
    assert loaded.splits[""]["expect"] == {"image": {"shape": [1]}}


PIPELINE = """\
import torch
from torch.utils.data import Dataset

class Squares(Dataset):
    def __init__(self, side=16, top=1.0):
        self.side, self.top = side, top

    def __len__(self):
        return 24

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        image = torch.rand(3, self.side, self.side, generator=generator) * self.top
        return {"image": image, "label": i % 3}
"""
SQUARES = """\
# squares
dataset: {_target_: squares.Squares, side: 16, top: 1.0}
loader: {batch_size: 4}
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_the_gate_fails_when_the_pipeline_drifts_from_what_was_frozen(tmp_path, run_dlcheck):
    (tmp_path / "squares.py").write_text(PIPELINE)
    path = tmp_path / "dlcheck.yaml"
    path.write_text(SQUARES)
    done = run_dlcheck("freeze")
    assert done.returncode == 0, done.stderr
    assert path.read_text() == SQUARES + (
        "expect:\n"
        "  image: {shape: [3, 16, 16], dtype: float32, range: [0, 1]}\n"
        "  label: {shape: [], dtype: int64, classes: 3}\n"
    )
    done = run_dlcheck("gate", ".", "dataset.side=20", "--epochs", "2", "--format", "json")
    assert done.returncode == 1, done.stderr
    (found,) = json.loads(done.stdout)["findings"]
    assert (found["rule"], found["where"]["field"]) == ("contract-mismatch", "image")
    evidence = found["evidence"]
    assert (evidence["expected"], evidence["seen"]) == ("[3, 16, 16]", "[3, 20, 20]")


def frozen(monkeypatch, folder: Path, seen: Observation) -> int:
    """Freeze a recorded run."""
    (folder / "dlcheck.yaml").write_text(SQUARES)
    monkeypatch.setattr(session, "run", lambda _: Outcome(seen))
    monkeypatch.chdir(folder)
    return cli.main(["freeze"])


def test_a_run_with_faults_is_not_frozen(tmp_path, monkeypatch, capsys):
    failure = Failure("build", "ValueError", "no such folder")
    seen = Observation(failures={failure.key: failure})
    assert frozen(monkeypatch, tmp_path, seen) == 1
    told = capsys.readouterr()
    assert "nothing is frozen" in told.err
    assert "pipeline-error" in told.out
    assert (tmp_path / "dlcheck.yaml").read_text() == SQUARES


def test_a_run_without_names_has_nothing_to_freeze(tmp_path, monkeypatch, capsys):
    seen = Field({"Tensor": Tally(8)}, {"float32": Tally(8)}, {"3x16x16": Tally(8)})
    split = Split(loader=Loader(kind="map"), samples=8, of=8, batches=2, fields={"": seen})
    assert frozen(monkeypatch, tmp_path, Observation(splits={"": split})) == 1
    assert "no field was seen that expect could name" in capsys.readouterr().err
