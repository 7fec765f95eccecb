"""The hooks see samples in workers of every kind, and leave the user's loader as it was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402

PIPELINE = """
import os
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

class Numbers(Dataset):
    ready = False
    def __len__(self):
        return 10
    def __getitem__(self, index):
        assert get_worker_info() is not None
        assert Numbers.ready, "the user's own worker_init_fn ran"
        if index == 7:
            raise ValueError(f"sample {index}")
        return torch.full((3,), float(index)), index

def ready(worker):
    Numbers.ready = True

def loader(context, **more):
    return DataLoader(
        Numbers(), batch_size=2, num_workers=1, multiprocessing_context=context,
        worker_init_fn=ready, **more,
    )

class Repeat:
    def __init__(self, sampler):
        self.sampler = sampler
    def __iter__(self):
        while True:
            yield from iter(self.sampler)

class Eager(DataLoader):
    'Its workers are started when it is made and live for ever, as in timm and Ultralytics.'
    def __init__(self, dataset, **more):
        super().__init__(dataset, **more)
        object.__setattr__(self, "batch_sampler", Repeat(self.batch_sampler))
        self.iterator = super().__iter__()
    def __len__(self):
        return len(self.batch_sampler.sampler)
    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)

class Good(Numbers):
    def __getitem__(self, index):
        return super().__getitem__(index % 7)

def make_loaders():
    live = loader("fork", persistent_workers=True)
    iter(live)
    return {
        "fork": loader("fork"),
        "spawn": loader("spawn"),
        "forkserver": loader("forkserver", persistent_workers=True),
        "live": live,
        "eager": Eager(Good(), batch_size=2, num_workers=1, worker_init_fn=ready),
    }
"""


@pytest.fixture(scope="module")
def splits(tmp_path_factory: Any) -> dict[str, Any]:
    """What one run of the real tool sees of loaders of each start method."""
    import subprocess
    import sys

    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "pipeline.py").write_text(PIPELINE)
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [
            sys.executable, "-m", "dlcheck", "shapes", "pipeline.py:make_loaders",
            "--format=json", "--budget=3m",
        ],
        cwd=folder, env={**os.environ, "PYTHONPATH": root}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["observation"]["splits"]
    return found


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver", "live"])
def test_samples_are_seen_in_workers(context: str, splits: dict[str, Any]) -> None:
    split = splits[context]
    assert split["samples"] == 8
    assert split["batches"] == 4
    assert split["fields"]["0"]["shapes"]["3"]["n"] == 8
    assert (split["fields"]["1"]["low"], split["fields"]["1"]["high"]) == (0, 9)


def test_workers_older_than_the_drive_are_seen_in_their_own_split(splits: dict[str, Any]) -> None:
    eager = splits["eager"]
    prefetched = 4
    assert eager["batches"] == 10
    assert 10 - prefetched <= eager["samples"] <= 10
    assert eager["again"] >= 10
    assert "failures" not in eager


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver", "live"])
def test_a_failure_in_a_worker_is_written_by_the_worker(
    context: str, splits: dict[str, Any]
) -> None:
    (failure,) = splits[context]["failures"].values()
    assert (failure["phase"], failure["exception"]) == ("sample", "ValueError")
    assert failure["at"] == [7]
    assert failure["message"] == "sample 7"
    assert failure["worker"] == 0
    assert failure["frames"][-1]["file"].endswith("pipeline.py")


def test_a_live_iterator_is_dropped_and_said(splits: dict[str, Any]) -> None:
    notes = {name: split["loader"].get("notes", []) for name, split in splits.items()}
    assert notes == {
        "eager": [],
        "fork": [],
        "spawn": [],
        "forkserver": [],
        "live": ["a live persistent iterator was dropped"],
    }


class Numbers(Dataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return torch.full((3,), float(index))


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        yield from (torch.zeros(3) for _ in range(3))
        raise OSError("the stream broke")


def test_worker_init_fn_is_given_back(watch: Any) -> None:
    def user(worker: int) -> None:
        """Do nothing."""

    from dlcheck.run import hooks

    seen: list[Any] = []

    class Workers:
        def __init__(self, loader: Any) -> None:
            seen.append(loader.worker_init_fn)

    class Loader:
        worker_init_fn = staticmethod(user)
        multiprocessing_context = type("C", (), {"get_start_method": lambda self: "spawn"})()

    loader = Loader()
    hooks._follow_workers(Workers, watch)
    Workers(loader)
    assert isinstance(seen[0], hooks.WorkerInit)
    assert seen[0].user is user
    assert loader.worker_init_fn is user


def test_a_stream_that_raises_names_its_place(driven: Any) -> None:
    (failure,) = driven(DataLoader(Stream(), batch_size=2)).failures
    assert (failure.phase, failure.at) == ("sample", ("#3",))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_that_cannot_begin_is_reported(workers: int, driven: Any) -> None:
    class Closed(IterableDataset):
        def __iter__(self) -> Any:
            raise PermissionError("not yours")

    (failure,) = driven(DataLoader(Closed(), batch_size=2, num_workers=workers)).failures
    assert (failure.phase, failure.exception, failure.count) == ("iter", "PermissionError", 1)


def test_samples_of_a_failed_collate_are_described(driven: Any) -> None:
    class Ragged(Numbers):
        def __getitem__(self, index: int) -> Any:
            return {"image": torch.zeros(3, 4 + index % 2)}

    failures = driven(DataLoader(Ragged(), batch_size=2)).failures
    first = failures[0]
    assert first.phase == "collate"
    assert first.batch == (0, 1)
    assert [s.leaves["image"].shape for s in first.samples] == [(3, 4), (3, 5)]
    assert first.detail["default_collate"] is True


@pytest.mark.parametrize("made", [iter, tuple, torch.stack])
def test_what_getitems_returns_is_not_used_up(made: Any, driven: Any) -> None:
    class Many(Numbers):
        def __getitems__(self, indices: list[int]) -> Any:
            return made([self[index] for index in indices])

    collated = []

    def collate(data: Any) -> int:
        collated.append(len(list(data)))
        return 0

    run = driven(DataLoader(Many(), batch_size=2, collate_fn=collate))
    assert run.failures == []
    assert set(collated) == {2}
    assert run.split.samples == 6


def test_indices_of_any_kind_become_ids(driven: Any) -> None:
    import numpy as np

    class ByAnything(Numbers):
        def __getitem__(self, index: Any) -> Any:
            raise KeyError(index)

    order = [np.int64(3), torch.tensor(4), "name", (5, 6)]
    run = driven(DataLoader(ByAnything(), batch_size=1, sampler=order))
    assert {at for failure in run.failures for at in failure.at} == {3, 4, "name", "(5, 6)"}


def test_the_line_that_made_a_loader_is_remembered(watch: Any) -> None:
    class Mine(DataLoader):
        def __init__(self, dataset: Any) -> None:
            super().__init__(dataset, batch_size=2)

    plain = DataLoader(Numbers())
    mine = Mine(Numbers())
    file, line = watch.made_at[id(plain)]
    assert file == __file__
    assert watch.made_at[id(mine)] == (file, line + 1)


def test_a_user_that_catches_its_own_errors_is_not_accused(driven: Any) -> None:
    class Careful(Numbers):
        def __getitem__(self, index: int) -> Any:
            try:
                next(iter(DataLoader([1, "x"], batch_size=2)))
            except TypeError:
                return torch.zeros(3)
            return None

    assert driven(DataLoader(Careful(), batch_size=2)).failures == []


def test_what_is_read_before_the_drive_is_not_counted(driven: Any) -> None:
    loader = DataLoader(Numbers(), batch_size=2)
    assert len(list(loader)) == 3
    with pytest.raises(TypeError):
        next(iter(DataLoader([1, "x"], batch_size=2)))
    run = driven(loader, samples=2, epoch_hook=lambda loader, epoch: list(loader))
    assert run.failures == []
    assert (run.split.samples, run.split.again) == (2, 0)
