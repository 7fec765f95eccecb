"""Torch's private names, in one place. A missing one is reported, never a crash.

tests/run/test_torch_private.py holds the contract of each with the installed torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
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


def is_loader(value: object) -> bool:
    """Tell whether the value is a torch DataLoader."""
    module = importlib.import_module("torch.utils.data")
    return isinstance(value, module.DataLoader)


def is_iterable_dataset(value: object) -> bool:
    """Tell whether the value is an IterableDataset."""
    module = importlib.import_module("torch.utils.data")
    return isinstance(value, module.IterableDataset)


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


def workers_of(iterator: object) -> list[Any]:
    """Return the worker processes of a loader's iterator; empty when there are none."""
    workers = getattr(iterator, "_workers", None)
    return list(workers) if isinstance(workers, list | tuple) else []
