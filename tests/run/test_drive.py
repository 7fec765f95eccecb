"""The drive reads real loaders of every kind, counts rightly, and goes on after failures."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (  # noqa: E402 - torch may be absent
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    get_worker_info,
)


class Numbers(Dataset):
    """`n` samples; those in `bad` raise, each takes `seconds`."""

    def __init__(self, n: int = 20, bad: Any = (), seconds: float = 0.0) -> None:
        self.n, self.bad, self.seconds = n, bad, seconds
        self.drawn: list[int] = []

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.drawn.append(index)
        time.sleep(self.seconds)
        if index in self.bad:
            raise ValueError(f"sample {index} is broken")
        return torch.full((3, 4), float(index)), index


class Stream(IterableDataset):
    def __init__(self, n: int | None = 20) -> None:
        self.n = n

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        numbers = itertools.count(first, step) if self.n is None else range(first, self.n, step)
        return (torch.full((3,), float(number)) for number in numbers)


def counts(split: Any) -> tuple[int, int, int, int]:
    return split.samples, split.again, split.batches, split.finished_epochs


class ManyAtOnce(Numbers):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class InnerLoader(Numbers):
    """Reads each sample through a loader of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = DataLoader(Numbers(4), batch_size=2)

    def __getitem__(self, index: int) -> Any:
        return next(iter(self.inner))[0]


class Subclass(DataLoader):
    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset, batch_size=5)

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()


class Wrapper:
    """A loader around a loader that is no DataLoader itself."""

    def __init__(self, inner: DataLoader) -> None:
        self.inner = inner

    def __iter__(self) -> Iterator[Any]:
        return ([batch] for batch in self.inner)


LOADERS = {
    "map": (lambda: DataLoader(Numbers(), batch_size=8), (20, 20, 6, 2)),
    "map, workers": (lambda: DataLoader(Numbers(), batch_size=8, num_workers=2), (20, 20, 6, 2)),
    "drop_last": (lambda: DataLoader(Numbers(), batch_size=8, drop_last=True), (16, 16, 4, 2)),
    "batch larger than the dataset": (
        lambda: DataLoader(Numbers(3), batch_size=64),
        (3, 3, 2, 2),
    ),
    "persistent workers": (
        lambda: DataLoader(Numbers(), batch_size=8, num_workers=1, persistent_workers=True),
        (20, 20, 6, 2),
    ),
    "iterable": (lambda: DataLoader(Stream(), batch_size=8), (20, 20, 6, 2)),
    "iterable, workers": (
        lambda: DataLoader(Stream(), batch_size=8, num_workers=2),
        (20, 20, 8, 2),
    ),
    "batch_size=None": (lambda: DataLoader(Stream(), batch_size=None), (20, 20, 40, 2)),
    "batches from the dataset": (
        lambda: DataLoader(
            Batches(),
            sampler=BatchSampler(SequentialSampler(range(20)), 8, drop_last=False),
            batch_size=None,
        ),
        (20, 20, 6, 2),
    ),
    "batch sampler": (
        lambda: DataLoader(
            Numbers(), batch_sampler=[[0, 1, 2], [3], list(range(4, 20))], num_workers=1
        ),
        (20, 20, 6, 2),
    ),
    "__getitems__": (lambda: DataLoader(ManyAtOnce(), batch_size=8), (20, 20, 6, 2)),
    "subclass": (lambda: Subclass(Numbers()), (20, 20, 8, 2)),
    "a loader in a dataset": (lambda: DataLoader(InnerLoader(), batch_size=10), (20, 20, 4, 2)),
    "a loader in a loader": (
        lambda: Wrapper(DataLoader(Numbers(), batch_size=8)),
        (20, 20, 6, 2),
    ),
    "a loader in a loader, workers": (
        lambda: Wrapper(DataLoader(Numbers(), batch_size=8, num_workers=1)),
        (20, 20, 6, 2),
    ),
    "any iterable": (
        lambda: [(torch.zeros(8, 3), torch.zeros(8)), (torch.zeros(4, 3), torch.zeros(4))],
        (12, 12, 4, 2),
    ),
}


class Batches(Dataset):
    def __getitem__(self, indices: list[int]) -> tuple[Any, Any]:
        return torch.zeros(len(indices), 3), torch.tensor(indices)


@pytest.mark.parametrize("name", LOADERS)
def test_counts_are_right_for(name: str, driven: Any) -> None:
    make, expected = LOADERS[name]
    run = driven(make())
    assert run.failures == []
    assert counts(run.split) == expected


@pytest.mark.filterwarnings("ignore")
def test_stateful_loader_is_seen_in_its_workers(driven: Any) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    run = driven(stateful.StatefulDataLoader(Numbers(), batch_size=8, num_workers=1))
    assert counts(run.split) == (20, 20, 6, 2)
    assert set(run.split.fields) == {"", "0", "1"}


@pytest.mark.filterwarnings("ignore")
def test_webdataset_loader_counts_samples_once(driven: Any, tmp_path: Any) -> None:
    wds = pytest.importorskip("webdataset")
    with wds.TarWriter(str(tmp_path / "a.tar")) as tar:
        for number in range(12):
            tar.write({"__key__": f"{number:03d}", "cls": number})
    data = wds.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False).decode()
    data = data.to_tuple("__key__", "cls")
    loader = wds.WebLoader(data.batched(4), batch_size=None, num_workers=1)
    run = driven(loader)
    assert run.failures == []
    assert counts(run.split) == (12, 12, 6, 2)


@pytest.mark.filterwarnings("ignore")
def test_fastai_loader_is_driven(driven: Any) -> None:
    fastai = pytest.importorskip("fastai.data.load")
    samples = [(torch.zeros(3, 4), torch.tensor(i)) for i in range(20)]
    run = driven(fastai.DataLoader(samples, bs=8, num_workers=0, device=torch.device("cpu")))
    assert run.failures == []
    assert counts(run.split) == (20, 20, 6, 2)


def test_fields_have_names_types_and_ranges(driven: Any) -> None:
    split = driven(DataLoader(Numbers(20), batch_size=8)).split
    image = split.fields["0"]
    assert (image.low, image.high, image.n) == (0.0, 19.0, 40)
    assert set(image.shapes) == {"3x4"}
    assert {key: tally.n for key, tally in split.batch_sizes.items()} == {"8": 4, "4": 2}
    assert set(split.batch_fields["0"].shapes) == {"8x3x4", "4x3x4"}


def test_one_failing_sample_is_named_and_the_rest_is_read(driven: Any) -> None:
    run = driven(DataLoader(Numbers(20, bad={13}), batch_size=4))
    (failure,) = run.failures
    assert (failure.phase, failure.exception, failure.at) == ("sample", "ValueError", (13,))
    assert failure.user_frame.text.startswith("raise ValueError")
    assert counts(run.split) == (16, 0, 4, 0)


def test_failures_are_counted(driven: Any) -> None:
    run = driven(DataLoader(Numbers(40, bad=range(0, 40, 8)), batch_size=4, num_workers=2))
    assert sum(failure.count for failure in run.failures) == 5
    assert {at for failure in run.failures for at in failure.at} == {0, 8, 16, 24, 32}
    assert run.split.samples == 20


def test_a_loader_that_fails_always_is_given_up(driven: Any) -> None:
    dataset = Numbers(1000, bad=range(1000))
    run = driven(DataLoader(dataset, batch_size=4))
    assert sum(failure.count for failure in run.failures) == 64
    assert len(dataset.drawn) == 64


class OptionalKey(Numbers):
    """The second draw of a sample lacks a key."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        super().__getitem__(index)
        extra = {} if self.drawn.count(index) > 1 and index % 2 else {"extra": 1}
        return {"image": torch.zeros(3)} | extra


def test_a_second_epoch_finds_what_fails_only_there(driven: Any) -> None:
    run = driven(DataLoader(OptionalKey(), batch_size=5))
    phases = {failure.phase for failure in run.failures}
    assert phases == {"collate"}
    assert run.failures[0].epoch == 1
    assert run.failures[0].detail["default_collate"] is True
    assert run.split.finished_epochs == 1


def test_no_second_epoch_where_one_takes_a_large_share(driven: Any) -> None:
    run = driven(DataLoader(Numbers(20, seconds=0.02), batch_size=4), budget=1.6)
    assert counts(run.split) == (20, 0, 5, 1)


def test_a_bad_sample_beyond_the_budget_is_found(driven: Any) -> None:
    run = driven(DataLoader(Numbers(150, bad={149}, seconds=0.005), batch_size=4), budget=0.4)
    assert [f.at for f in run.failures] == [(149,)]
    assert 0 < run.split.samples < 100
    assert run.split.spread > 0
    assert run.split.finished_epochs == 0


def test_all_samples_are_read_whatever_the_budget(driven: Any) -> None:
    dataset = Numbers(150, seconds=0.002)
    run = driven(DataLoader(dataset, batch_size=4), budget=0.1, samples=-1)
    assert counts(run.split) == (150, 0, 38, 1)


def test_no_more_than_so_many_samples_are_read(driven: Any) -> None:
    dataset = Numbers(150)
    run = driven(DataLoader(dataset, batch_size=4), samples=20)
    assert counts(run.split) == (20, 0, 5, 0)
    assert len(dataset.drawn) == 20


class Endless(Sampler):
    def __iter__(self) -> Iterator[int]:
        return itertools.cycle(range(20))


@pytest.mark.parametrize("samples", [None, -1])
def test_an_endless_sampler_is_stopped(samples: int | None, driven: Any) -> None:
    run = driven(DataLoader(Numbers(), batch_size=4, sampler=Endless()), samples=samples)
    assert run.failures == []
    assert 40 <= run.split.samples <= 60
    assert run.split.finished_epochs == 0


def test_an_endless_stream_ends_at_the_budget(driven: Any) -> None:
    begun = time.monotonic()
    run = driven(DataLoader(Stream(None), batch_size=4), budget=0.3)
    assert time.monotonic() - begun < 2
    assert run.split.samples > 20
    assert run.failures == []


def test_repeated_samples_are_no_endless_sampler(driven: Any) -> None:
    order = [index for index in range(20) for _ in range(5)]
    run = driven(DataLoader(Numbers(), batch_size=4, sampler=order))
    assert counts(run.split) == (100, 100, 50, 2)


class Broken(Sampler):
    def __iter__(self) -> Iterator[int]:
        yield from range(6)
        raise RuntimeError("the sampler broke")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sampler_that_raises_is_reported_once(workers: int, driven: Any) -> None:
    run = driven(DataLoader(Numbers(), batch_size=4, sampler=Broken(), num_workers=workers))
    assert [(f.exception, f.message, f.count) for f in run.failures] == [
        ("RuntimeError", "the sampler broke", 1)
    ]
    assert run.failures[0].place().startswith(__file__)


def test_a_worker_init_fn_that_raises_is_reported_once(driven: Any) -> None:
    def fail(worker: int) -> None:
        raise OSError("no such disk")

    loader = DataLoader(Numbers(), batch_size=4, num_workers=1, worker_init_fn=fail)
    (failure,) = driven(loader).failures
    assert "no such disk" in failure.message
    assert failure.count == 1


def test_epoch_hook_gets_loader_and_epoch(driven: Any) -> None:
    calls: list[tuple[Any, int]] = []
    loader = DataLoader(Numbers(), batch_size=4)
    driven(loader, epoch_hook=lambda *args: calls.append(args))
    assert calls == [(loader, 0), (loader, 1)]


def test_a_failing_epoch_hook_is_reported(driven: Any) -> None:
    def hook(loader: Any, epoch: int) -> None:
        loader.sampler.set_epoch(epoch)

    run = driven(DataLoader(Numbers(), batch_size=4), epoch_hook=hook)
    assert [(f.phase, f.exception) for f in run.failures] == [("hook", "AttributeError")]
    assert counts(run.split) == (0, 0, 0, 0)


def test_a_loader_that_gives_no_iterator_is_reported(driven: Any) -> None:
    class No:
        def __iter__(self) -> Any:
            raise ConnectionError("offline")

    assert [(f.phase, f.exception) for f in driven(No()).failures] == [("iter", "ConnectionError")]


class TestSpread:
    """What is drawn beyond the budget is what the user's own sampler could have drawn."""

    def test_a_sampler_that_leaves_samples_out_is_obeyed(self, driven: Any) -> None:
        dataset = Numbers(300, bad=range(200, 300), seconds=0.002)
        sampler = SubsetRandomSampler(range(200))
        run = driven(DataLoader(dataset, batch_size=4, sampler=sampler), budget=0.2)
        assert run.failures == []
        assert run.split.spread > 0

    def test_batches_of_equal_size_stay_together(self, driven: Any) -> None:
        class Bucketed(Numbers):
            def __getitem__(self, index: int) -> Any:
                return super().__getitem__(index)[0].new_zeros(1 + index // 10)

        dataset = Bucketed(300, seconds=0.002)
        buckets = [list(range(first, first + 10)) for first in range(0, 300, 10)]
        run = driven(DataLoader(dataset, batch_sampler=buckets), budget=0.4)
        assert run.failures == []
        assert run.split.spread > 0
        assert {0, 299} & set(dataset.drawn[run.split.samples :][:30])

    def test_indices_that_are_no_numbers_are_kept(self, driven: Any) -> None:
        class Named(Numbers):
            def __getitem__(self, index: Any) -> Any:
                return super().__getitem__({f"s{i}": i for i in range(300)}[index])[0]

        names = [f"s{i}" for i in range(300)]
        run = driven(DataLoader(Named(300, seconds=0.002), batch_size=4, sampler=names), budget=0.2)
        assert run.failures == []
        assert run.split.spread > 0

    def test_first_and_last_come_first(self, driven: Any) -> None:
        dataset = Numbers(5000, seconds=0.001)
        run = driven(DataLoader(dataset, batch_size=4, shuffle=True), budget=0.3)
        spread = dataset.drawn[run.split.samples :]
        assert set(spread[:2]) == {0, 4999}

    def test_whole_batches_where_the_loader_drops_the_rest(self, driven: Any) -> None:
        sizes = []

        def collate(samples: list[Any]) -> Any:
            sizes.append(len(samples))
            return samples

        loader = DataLoader(
            Numbers(500, seconds=0.001), batch_size=12, shuffle=True, drop_last=True,
            collate_fn=collate,
        )  # fmt: skip
        run = driven(loader, budget=0.2)
        assert run.split.spread > 0
        assert set(sizes) == {12}

    def test_random_sampler_of_torch_is_mixed(self) -> None:
        from dlcheck.run import spread

        loader = DataLoader(Numbers(1000), batch_size=64, sampler=RandomSampler(range(1000)))
        found = spread.batches(loader, 1000, 0, float("inf"))
        assert {0, 999} <= set(found[0])
        assert 256 <= sum(map(len, found)) <= 258

    def test_in_workers_where_the_loader_has_them(self, driven: Any) -> None:
        class InWorkers(Numbers):
            def __getitem__(self, index: int) -> Any:
                assert get_worker_info().dataset.opened
                return super().__getitem__(index)

        def open_files(worker: int) -> None:
            get_worker_info().dataset.opened = True

        loader = DataLoader(
            InWorkers(400, bad={399}, seconds=0.01), batch_size=4, num_workers=1,
            worker_init_fn=open_files,
        )  # fmt: skip
        run = driven(loader, budget=2)
        assert {at for failure in run.failures for at in failure.at} <= {399}
        assert {f.exception for f in run.failures} <= {"ValueError"}
        assert run.split.spread > 0
