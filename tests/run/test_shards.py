"""Ranks share out the batches of one loader: together all of them, each batch once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlcheck.observation import Observation

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402


class Numbers(Dataset[Any]):
    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return {"x": torch.full((2,), index), "label": index % 2}


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from range(6)


@pytest.fixture
def part(watch: Any):
    """Drive one rank's part of a loader; None when the rank reads nothing."""
    from dlcheck.run import shards
    from dlcheck.run.drive import Drive, Plan
    from dlcheck.run.target import Target
    from tests.run.conftest import read

    def run(loader: Any, number: int, of: int = 2, samples: int | None = -1) -> Any:
        for path in Path(watch.scratch.folder).glob("obs-*"):
            path.unlink()
        drive = Drive(watch, Target(loader, loader.dataset), Plan(20.0, samples, 0))
        if not shards.take_part(drive, number, of):
            return None
        drive.run()
        return read(Path(watch.scratch.folder))

    return run


def loader(**more: Any) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    known = {"batch_size": 4, "shuffle": True, "generator": generator}
    return DataLoader(Numbers(), **known | more)


@pytest.mark.parametrize("of", [2, 3, 7])
def test_every_batch_is_read_by_one_rank(part, of):
    whole = Observation()
    asked: list[int] = []
    for number in range(of):
        one = loader()
        whole = whole.merge(part(one, number, of))
        asked += one.dataset.asked[: len(one.dataset.asked) // 2]
    split = whole.splits[""]
    assert sorted(asked) == list(range(22))
    assert (split.samples, split.again) == (22, 22)
    assert split.batch_fields["x"].shapes["2x2"].at[0] == 5
    orders = {v for k, v in whole.settings.items() if k.startswith("order:")}
    assert len(orders) == 1


def test_another_order_is_noticed(part):
    orders = set()
    for seed in (0, 1):
        seen = part(loader(generator=torch.Generator().manual_seed(seed)), seed)
        orders |= {v for k, v in seen.settings.items() if k.startswith("order:")}
    assert len(orders) == 2


def test_the_loader_looks_as_long_as_it_is(part):
    one = loader()
    part(one, 1)
    assert len(one) == 6
    assert type(one) is DataLoader


def test_loaders_within_are_left_whole(part):
    one, other = loader(), loader()
    part(one, 1)
    assert sum(len(batch["label"]) for batch in other) == 22


def test_a_count_of_samples_is_shared_out(part):
    assert part(loader(), 0, samples=16).splits[""].samples == 8


def test_a_stream_is_read_by_the_first_rank(part):
    stream = DataLoader(Stream(), batch_size=2)
    assert part(stream, 0).splits[""].samples == 6
    assert part(stream, 1) is None


def test_a_sampler_that_shares_out_already_does_it_alone(part):
    data = Numbers()
    sampler: Any = DistributedSampler(data, num_replicas=2, rank=1, shuffle=False)
    part(DataLoader(data, batch_size=4, sampler=sampler), 1)
    assert sorted(set(data.asked)) == list(range(1, 22, 2))
