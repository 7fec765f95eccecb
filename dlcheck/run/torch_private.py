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


def forget_dead_storages() -> None:
    """Drop torch's records of storages that were sent and are gone, as it does every 128 itself."""
    reductions = sys.modules.get("torch.multiprocessing.reductions")
    cache = getattr(reductions, "shared_cache", None)
    with contextlib.suppress(Exception):
        if cache is not None:
            cache.free_dead_references()


def at_worker_end(function: Callable[[], None]) -> None:
    """Have a worker call a function when it ends by itself; one that is killed does not."""
    from multiprocessing.util import Finalize

    Finalize(None, function, exitpriority=100)


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


def replace_index_sampler(loader: Any, replaced: Callable[[Any], Any]) -> None:
    """Let a loader's iterators draw from `replaced(its own sampler)`; every other loader's do not.

    Raises:
        AttributeError: this torch's DataLoader has no `_index_sampler`.
    """
    classes = type(loader).__mro__
    owner: Any = next((c for c in classes if "_index_sampler" in vars(c)), classes[0])
    own: property = owner._index_sampler  # noqa: SLF001

    def index_sampler(self: Any) -> Any:
        sampler = own.__get__(self)
        return replaced(sampler) if self is loader else sampler

    # On the class: torch refuses another sampler on the object, which stays as the user made it.
    owner._index_sampler = property(index_sampler)  # noqa: SLF001


def workers_of(iterator: object) -> list[Any]:
    """Return the worker processes of a loader's iterator; empty when there are none."""
    workers = getattr(iterator, "_workers", None)
    return list(workers) if isinstance(workers, list | tuple) else []


def fetcher_of(loader: Any) -> Any:
    """Make what a worker of this loader calls for each batch."""
    module = fetch_module()
    several = loader.batch_sampler is not None
    name = (
        "_IterableDatasetFetcher" if is_iterable_dataset(loader.dataset) else "_MapDatasetFetcher"
    )
    made = getattr(module, name)
    return made(loader.dataset, several, loader.collate_fn, bool(loader.drop_last))


def fake_mode() -> contextlib.AbstractContextManager[Any]:
    """Return a mode in which tensors have sizes and no memory.

    Raises:
        ImportError: this torch has none where we know it.
    """
    module = importlib.import_module("torch._subclasses.fake_tensor")
    made: contextlib.AbstractContextManager[Any] = module.FakeTensorMode(allow_non_fake_inputs=True)
    return made


def dispatches(see: Callable[[Any], None]) -> contextlib.AbstractContextManager[Any]:
    """Return a mode that shows every tensor that an operator returns, those of backward too."""
    module: Any = importlib.import_module("torch.utils._python_dispatch")
    tree: Any = importlib.import_module("torch.utils._pytree")
    tensor: Any = importlib.import_module("torch").Tensor

    class Seeing(module.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            made = function(*args, **(kwargs or {}))
            for one in tree.tree_leaves(made):
                if isinstance(one, tensor):
                    see(one)
            return made

    found: contextlib.AbstractContextManager[Any] = Seeing()
    return found


def on_cuda_start(function: Callable[[], None]) -> None:
    """Have CUDA call a function when it is first used, in this process or a fork of it."""
    module: Any = importlib.import_module("torch.cuda")
    module._lazy_call(function)  # noqa: SLF001


def begin_history() -> bool:
    """Have CUDA's allocator remember who asked for each live block; False when it does already."""
    torch: Any = importlib.import_module("torch")
    enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)  # noqa: SLF001
    if enabled is not None and enabled():
        return False
    memory: Any = importlib.import_module("torch.cuda.memory")
    memory._record_memory_history(  # noqa: SLF001
        "state", context="state", stacks="python", max_entries=1
    )
    return True


def end_history() -> None:
    """Stop what begin_history began."""
    memory: Any = importlib.import_module("torch.cuda.memory")
    memory._record_memory_history(None)  # noqa: SLF001


def memory_snapshot() -> dict[str, Any]:
    """Return the CUDA allocator's segments and blocks, with the frames that asked for them."""
    memory: Any = importlib.import_module("torch.cuda.memory")
    found: dict[str, Any] = memory._snapshot()  # noqa: SLF001
    return found
