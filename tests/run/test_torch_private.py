"""What the hooks rely on in torch: each private name, and fetchers that give the same batches."""

from __future__ import annotations

import sys
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
    SequentialSampler,
    Subset,
    get_worker_info,
)

from dlcheck.run import torch_private  # noqa: E402


class Map(Dataset):
    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: Any) -> Any:
        return torch.as_tensor(index) * 2.0, {"id": index}


class Many(Map):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in reversed(indices)]


class NoMany(Map):
    __getitems__ = None


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(first, 11, step))


class ByBatch(Dataset):
    def __getitem__(self, indices: list[int]) -> Any:
        return torch.tensor(indices)


LOADERS = {
    "map": lambda: DataLoader(Map(), batch_size=4),
    "map, shuffled": lambda: DataLoader(
        Map(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1)
    ),
    "map, workers": lambda: DataLoader(Map(), batch_size=4, num_workers=2),
    "map, drop_last": lambda: DataLoader(Map(), batch_size=4, drop_last=True),
    "map, collate": lambda: DataLoader(Map(), batch_size=4, collate_fn=tuple),
    "__getitems__": lambda: DataLoader(Many(), batch_size=4),
    "__getitems__ of None": lambda: DataLoader(NoMany(), batch_size=4),
    "subset": lambda: DataLoader(Subset(Map(), [3, 1, 2]), batch_size=2),
    "subset of __getitems__": lambda: DataLoader(Subset(Many(), [3, 1, 2]), batch_size=2),
    "map, no batches": lambda: DataLoader(Map(), batch_size=None),
    "dataset makes the batches": lambda: DataLoader(
        ByBatch(),
        batch_size=None,
        sampler=BatchSampler(SequentialSampler(range(11)), 4, drop_last=False),
    ),
    "stream": lambda: DataLoader(Stream(), batch_size=4),
    "stream, workers": lambda: DataLoader(Stream(), batch_size=2, num_workers=2),
    "stream, drop_last": lambda: DataLoader(Stream(), batch_size=4, drop_last=True),
    "stream, no batches": lambda: DataLoader(Stream(), batch_size=None),
}


def taken(loader: Any) -> str:
    torch.manual_seed(0)
    return repr(list(loader))


@pytest.mark.parametrize("name", LOADERS)
def test_hooked_fetcher_gives_the_batches_of_torchs_own(
    name: str, torch_as_it_was: None, tmp_path: Any
) -> None:
    from dlcheck.run.hooks import install
    from dlcheck.run.scratch import Scratch
    from dlcheck.run.watch import Watch

    plain = taken(LOADERS[name]())
    assert install(Watch(Scratch(str(tmp_path)))) == []
    assert taken(LOADERS[name]()) == plain


def test_fetchers_are_built_and_called_as_the_hooks_expect() -> None:
    module = torch_private.fetch_module()
    fetcher = module._MapDatasetFetcher(Map(), True, tuple, False)  # noqa: FBT003 - as torch calls it
    assert (fetcher.auto_collation, fetcher.collate_fn, fetcher.drop_last) == (True, tuple, False)
    assert len(fetcher.fetch([1, 2])) == 2
    stream = module._IterableDatasetFetcher(Stream(), True, tuple, False)  # noqa: FBT003
    assert stream.ended is False
    assert next(stream.dataset_iter) == 0


def test_a_loader_looks_its_fetcher_up_in_the_module(torch_as_it_was: None) -> None:
    class Own(torch_private.fetch_module()._MapDatasetFetcher):
        def fetch(self, possibly_batched_index: Any) -> str:
            return "own"

    torch_private.fetch_module()._MapDatasetFetcher = Own
    assert next(iter(DataLoader(Map()))) == "own"


def test_the_iterator_class_starts_the_workers() -> None:
    iterator = iter(DataLoader(Map(), num_workers=1))
    assert type(iterator) is torch_private.multiprocessing_iterator()
    workers = torch_private.workers_of(iterator)
    assert [worker.is_alive() for worker in workers] == [True]
    assert torch_private.workers_of(iter(DataLoader(Map()))) == []
    assert torch_private.workers_of(object()) == []


@pytest.mark.filterwarnings("ignore")
def test_the_stateful_iterator_is_found_once_imported() -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    iterator = iter(stateful.StatefulDataLoader(Map(), num_workers=1))
    assert type(iterator) is torch_private.stateful_iterator()


def test_kinds_are_told_apart() -> None:
    assert torch_private.is_loader(DataLoader(Map()))
    assert not torch_private.is_loader([1])
    assert torch_private.is_iterable_dataset(Stream())
    assert not torch_private.is_iterable_dataset(Map())
    assert torch_private.default_collate() is DataLoader(Map()).collate_fn
    assert torch_private.is_subset(Subset(Map(), [1]))
    assert not torch_private.is_subset(Subset(Many(), [1]))
    assert torch_private.is_plain_shuffle(RandomSampler(Map()))
    assert not torch_private.is_plain_shuffle(SequentialSampler(Map()))


def test_this_process_is_no_worker_and_can_pose_as_one() -> None:
    assert torch_private.worker_number() is None
    assert torch_private.number_of_workers() == 0
    with torch_private.as_worker(1, 3, Map()):
        assert (torch_private.worker_number(), torch_private.number_of_workers()) == (1, 3)
        assert list(Stream()) == [1, 4, 7, 10]
    assert get_worker_info() is None


def test_subclasses_answer_plainly_in_the_context() -> None:
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("asked")

    tensor = torch.ones(2).as_subclass(Loud)
    with torch_private.plain_tensors():
        assert tensor.sum().item() == 2
    with pytest.raises(RuntimeError):
        tensor.sum()


def test_records_of_storages_that_are_gone_can_be_dropped() -> None:
    from torch.multiprocessing.reductions import StorageWeakRef, shared_cache

    storage = torch.zeros(3).untyped_storage()
    shared_cache["gone"] = StorageWeakRef(storage)
    torch_private.forget_dead_storages()
    assert "gone" in shared_cache
    del storage
    torch_private.forget_dead_storages()
    assert "gone" not in shared_cache


def test_a_torch_without_the_context_is_no_crash(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", object())
    with torch_private.plain_tensors():
        pass


def test_missing_names_are_reported(monkeypatch: Any, tmp_path: Any, torch_as_it_was: None) -> None:
    from dlcheck.run.hooks import install
    from dlcheck.run.scratch import Scratch
    from dlcheck.run.watch import Watch

    watch = Watch(Scratch(str(tmp_path)))
    with monkeypatch.context() as patch:
        patch.delattr("torch.utils.data.dataloader._MultiProcessingDataLoaderIter")
        (missing,) = install(watch)
    assert "_MultiProcessingDataLoaderIter" in missing
    with monkeypatch.context() as patch:
        patch.delattr("torch.utils.data._utils.fetch._MapDatasetFetcher")
        (missing,) = install(watch)
    assert "_MapDatasetFetcher" in missing


@pytest.mark.usefixtures("no_device_faked")
def test_fake_tensors_have_sizes_and_no_memory() -> None:
    with torch_private.fake_mode():
        large = torch.empty(1 << 40)
        assert large.untyped_storage().nbytes() == 1 << 42
        assert (large[: 1 << 20] + 1).shape == (1 << 20,)


def test_every_tensor_that_an_operator_returns_is_shown_those_of_backward_too() -> None:
    shown: list[tuple[int, ...]] = []
    weight = torch.zeros(3, 5, requires_grad=True)
    with torch_private.dispatches(lambda tensor: shown.append(tuple(tensor.shape))):
        loss = (torch.ones(2, 3) @ weight).sum()
        assert (3, 5) not in shown
        loss.backward()
    assert {(2, 3), (2, 5), (), (3, 5)} <= set(shown)


def test_a_function_can_wait_for_cuda_to_start() -> None:
    def function() -> None:
        raise AssertionError

    waiting = torch.cuda._queued_calls
    before = list(waiting)
    try:
        torch_private.on_cuda_start(function)
        assert [call for call, _ in waiting[len(before) :]] == [function]
    finally:
        waiting[:] = before


def test_the_history_is_asked_for_in_words_that_torch_takes() -> None:
    """Wrong words are refused before the missing device is."""
    if torch.cuda.is_available():
        assert torch_private.begin_history()
        torch_private.end_history()
        return
    with pytest.raises((RuntimeError, AssertionError)) as refused:
        torch_private.begin_history()
    assert "expected" not in str(refused.value)


@pytest.mark.parametrize("size", [4, None])
def test_a_fetcher_is_what_a_worker_would_call(size: int | None) -> None:
    loader = DataLoader(Map(), batch_size=size, collate_fn=str)
    assert torch_private.fetcher_of(loader).fetch([3, 4] if size else 3) == str(
        [Map()[3], Map()[4]] if size else Map()[3]
    )
    stream = DataLoader(Stream(), batch_size=size, collate_fn=str)
    assert torch_private.fetcher_of(stream).fetch([True, True] if size else True)


def test_index_sampler_is_replaced_for_one_loader_alone(torch_as_it_was):
    """Workers are sent what the other sampler gives; the user's own object stays in its place."""
    one, other = (DataLoader(list(range(6)), batch_size=2, num_workers=1) for _ in range(2))
    torch_private.replace_index_sampler(one, lambda sampler: list(sampler)[1:])
    assert [batch.tolist() for batch in one] == [[2, 3], [4, 5]]
    assert [batch.tolist() for batch in other] == [[0, 1], [2, 3], [4, 5]]
    assert len(list(one.batch_sampler)) == 3
