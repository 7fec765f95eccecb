"""Torch's private names, in one place. A missing one is reported, never a crash.

tests/run/test_torch_private.py holds the contract of each with the installed torch.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


def fetch_module() -> Any:
    """Return torch.utils.data._utils.fetch; its two fetcher classes are what a loader calls.

    Raises:
        AttributeError: a class is missing or no longer built the way the hooks expect.
    """
    module = importlib.import_module("torch.utils.data._utils.fetch")
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        getattr(module, name).fetch  # noqa: B018 - raises when it is gone
    return module


def multiprocessing_iterator() -> Any:
    """Return the iterator class that starts workers in its constructor."""
    module = importlib.import_module("torch.utils.data.dataloader")
    return module._MultiProcessingDataLoaderIter  # noqa: SLF001


def stateful_iterator() -> Any:
    """Return torchdata's class of the same purpose; None when nobody imported it."""
    module = sys.modules.get("torchdata.stateful_dataloader.stateful_dataloader")
    return getattr(module, "_StatefulMultiProcessingDataLoaderIter", None)


def is_loader(value: object) -> bool:
    """Tell whether the value is a torch DataLoader."""
    module = importlib.import_module("torch.utils.data")
    return isinstance(value, module.DataLoader)


def is_iterable_dataset(value: object) -> bool:
    """Tell whether the value is an IterableDataset."""
    module = importlib.import_module("torch.utils.data")
    return isinstance(value, module.IterableDataset)


def is_plain_shuffle(value: object) -> bool:
    """Tell torch's own RandomSampler: any index may stand beside any other."""
    module = importlib.import_module("torch.utils.data")
    return type(value) is module.RandomSampler


def is_subset(value: object) -> bool:
    """Tell torch's own Subset, whose `__getitems__` takes one index after the other."""
    module = importlib.import_module("torch.utils.data")
    return type(value) is module.Subset and not hasattr(value.dataset, "__getitems__")  # type: ignore[attr-defined]


def default_collate() -> Callable[[Any], Any]:
    """Return torch's default_collate."""
    module = importlib.import_module("torch.utils.data")
    collate: Callable[[Any], Any] = module.default_collate
    return collate


def worker_number() -> int | None:
    """Return the number of the worker that this process is, None in the main process."""
    module = importlib.import_module("torch.utils.data")
    info = module.get_worker_info()
    return None if info is None else int(info.id)


@contextlib.contextmanager
def as_worker(number: int | None, workers: int, dataset: Any) -> Iterator[None]:
    """Let get_worker_info() answer as in that worker; in the main process for None."""
    module: Any = importlib.import_module("torch.utils.data._utils.worker")
    before = getattr(module, "_worker_info", None)
    if number is not None and workers:
        module._worker_info = module.WorkerInfo(  # noqa: SLF001
            id=number, num_workers=workers, seed=0, dataset=dataset
        )
    try:
        yield
    finally:
        module._worker_info = before  # noqa: SLF001


def number_of_workers() -> int:
    """Return how many workers the loader of this worker has, 0 in the main process."""
    module = importlib.import_module("torch.utils.data")
    info = module.get_worker_info()
    return 0 if info is None else int(info.num_workers)


def plain_tensors() -> contextlib.AbstractContextManager[None]:
    """Return a context in which subclasses of Tensor answer as Tensor does, without their code."""
    core = getattr(sys.modules.get("torch"), "_C", None)
    context = getattr(core, "DisableTorchFunctionSubclass", contextlib.nullcontext)
    found: contextlib.AbstractContextManager[None] = context()
    return found


def workers_of(iterator: object) -> list[Any]:
    """Return the worker processes of a loader's iterator; empty when there are none."""
    workers = getattr(iterator, "_workers", None)
    return list(workers) if isinstance(workers, list | tuple) else []
