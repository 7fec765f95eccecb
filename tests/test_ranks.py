"""One run on many ranks: each reads its part, rank 0 reports what one process would have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import judge
from dlcheck.observation import Failure, Observation, Split
from dlcheck.ranks import ORDER, Peers, Rank, lost, rank_of

ROOT = Path(__file__).parents[1]
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500", "WORLD_SIZE": "2"}
TWO = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
PIPELINE = """\
import os, signal, time
import torch
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 37

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        size = 20 if i == 19 and "RAGGED" in os.environ else 16
        return {"image": torch.rand(3, 16, size, generator=generator), "label": i % 3}

def make_loader():
    return DataLoader(Squares(), batch_size=4, shuffle=True, num_workers=1)

class Slow(Squares):
    def __getitem__(self, i):
        if os.environ["RANK"] == "1":
            os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1)
        return super().__getitem__(i)

def slow_loader():
    return DataLoader(Slow(), batch_size=4)
"""

needs_gloo = pytest.mark.skipif(
    find_spec("torch") is None or sys.platform != "linux", reason="needs torch with gloo"
)


class Helper:
    """Stands for the process that joins the ranks."""

    ended: int | None = None

    def poll(self) -> int | None:
        return self.ended


def peers(folder: Path, of: int = 2) -> Peers:
    (folder / "ranks").mkdir()
    return Peers(Rank(0, of), folder / "ranks", Helper())  # type: ignore[arg-type]


def sent(folder: Path, number: int, seen: Observation, **states: str) -> None:
    text = json.dumps({"seen": seen.to_json(), "states": states})
    (folder / "ranks" / f"rank-{number}.json").write_text(text)


def part(samples: int, **more: Any) -> Observation:
    known = {"samples": samples, "batches": 1, "epochs": 1, "finished_epochs": 1} | more
    return Observation(splits={"": Split(**known)})


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"RANK": "1"}, None),
        (TORCHRUN | {"RANK": "1"}, (1, 2)),
        (TORCHRUN | {"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "1", "WORLD_SIZE": "2"}, None),
        (TORCHRUN | {"RANK": "x"}, None),
    ],
    ids=["none", "one-name", "torchrun", "alone", "another-launcher", "nonsense"],
)
def test_only_torchrun_makes_ranks(environment, rank):
    found = rank_of(environment)
    assert (found and (found.number, found.of)) == rank


def test_all_ranks_seed_alike():
    first, second = (rank_of(TORCHRUN | {"RANK": number}) for number in "01")
    assert first
    assert second
    assert first.seed == second.seed


def test_parts_add_up_and_pass_side_by_side(tmp_path):
    group = peers(tmp_path, 3)
    sent(tmp_path, 1, part(4, seconds=3.0))
    sent(tmp_path, 2, part(2, seconds=2.0))
    assert not group.waiting(hurry=False)
    split = group.join(part(6, seconds=1.0)).splits[""]
    assert (split.samples, split.batches, split.seconds) == (12, 3, 3.0)
    assert group.cut == ""


def test_an_epoch_is_finished_when_every_rank_finished_it(tmp_path):
    group = peers(tmp_path)
    sent(tmp_path, 1, part(4, finished_epochs=0))
    assert group.join(part(6)).splits[""].finished_epochs == 0


def test_a_rank_that_was_lost_is_a_finding(tmp_path):
    group = peers(tmp_path)
    (tmp_path / "ranks" / "joined").touch()
    assert group.waiting(hurry=False)
    (tmp_path / "ranks" / "gone-1.txt").write_text("Connection closed by peer [127.0.0.1]:4244.")
    assert not group.waiting(hurry=False)
    seen = group.join(part(6))
    (finding,) = judge(seen, select=["pipeline-error"])[0]
    assert finding.message == (
        "rank 1 of 2 ended without a report (Connection closed by peer [127.0.0.1]:4244.)"
    )
    assert group.cut == "rank 1 was lost"


def test_nobody_waits_for_a_helper_that_ended(tmp_path):
    group = peers(tmp_path)
    group.helper.ended = 0  # type: ignore[attr-defined]
    assert not group.waiting(hurry=False)
    (failure,) = group.join(part(1)).failures.values()
    assert failure.message == "rank 1 of 2 was lost before the ranks had met"


def test_what_keeps_a_rank_from_running_is_told_by_rank_0(tmp_path):
    group = peers(tmp_path)
    sent(tmp_path, 1, lost(ValueError("no torch here")))
    seen = group.join(part(6))
    (finding,) = judge(seen, select=["pipeline-error"])[0]
    assert "no torch here" in finding.message
    assert group.cut == "rank 1: no torch here"


def test_random_states_of_failures_come_along(tmp_path):
    group = peers(tmp_path)
    failure = Failure("sample", "ValueError", "bad", detail={"state": "state-7-1"})
    sent(tmp_path, 1, part(1, failures={failure.key: failure}), **{"state-7-1": "AAEC"})
    (found,) = group.join(part(1)).splits[""].failures.values()
    assert (tmp_path / found.detail["state"]).read_bytes() == bytes(range(3))
    assert found.detail["rank"] == 1


def test_other_orders_on_other_ranks_are_no_whole_run(tmp_path):
    group = peers(tmp_path)
    other = Observation(part(1).splits, settings={f"{ORDER}:1": 5, "probe": "none"})
    sent(tmp_path, 1, other)
    seen = group.join(Observation(part(1).splits, settings={f"{ORDER}:0": 4, "probe": ""}))
    assert group.cut == "the ranks drew batches in different orders"
    assert seen.settings == {"probe": "", "ranks": 2}


def started(folder: Path, loader: str, *launcher: str) -> subprocess.Popen[str]:
    (folder / "pipeline.py").write_text(textwrap.dedent(PIPELINE))
    command = ["-m", "dlcheck", "shapes", f"pipeline.py:{loader}", "--samples", "all"]
    return subprocess.Popen(
        [sys.executable, *launcher, *command, "--format", "json", "--seed", "3"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def same(one: Any, other: Any, path: str = "") -> list[str]:
    """Name what differs, times and process ids left out."""
    if path.rpartition(".")[2] in {"seconds", "probe_pid", "state", "rank", "ranks"}:
        return []
    if isinstance(one, dict) and isinstance(other, dict):
        keys = dict.fromkeys([*one, *other])
        return [w for key in keys for w in same(one.get(key), other.get(key), f"{path}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [word for n, (a, b) in pairs for word in same(a, b, f"{path}[{n}]")]
    return [] if one == other else [f"{path}: {one} / {other}"]


@needs_gloo
@pytest.mark.slow
def test_two_ranks_report_what_one_process_reports(tmp_path):
    """Field by field, from the counts to the journeys."""
    two, one = (started(tmp_path, "make_loader", *launcher) for launcher in (TWO, ()))
    texts = [process.communicate(timeout=100) for process in (two, one)]
    assert (two.returncode, one.returncode) == (0, 0), texts
    reports = [json.loads(out) for out, _ in texts]
    assert same(*reports) == []
    assert reports[0]["seen"]["samples"] == 37
    assert reports[0]["observation"]["settings"]["ranks"] == 2


@needs_gloo
@pytest.mark.slow
def test_a_rank_that_dies_is_a_finding_of_rank_0(tmp_path):
    two = started(tmp_path, "slow_loader", *TWO)
    out, err = two.communicate(timeout=100)
    report = json.loads(out[out.index("{") :])
    messages = [finding["message"] for finding in report["findings"]]
    assert any(text.startswith("rank 1 of 2 ") for text in messages), err
    assert report["verdict"] == "fail"
    assert two.returncode != 0
