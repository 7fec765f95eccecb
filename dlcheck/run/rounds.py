"""The epochs that the probe drives again: as the main process sees them, or as worker 0 does."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from dlcheck.run import torch_private
from dlcheck.run.facts import length_of

MOST_BATCHES = 256
MOST_ERRORS = 16


@dataclass
class Rounds:
    """One loader on its way in one role.

    `seconds` count from the first batch: what is imported for it comes once, and may take long.
    `around` gives a context for each batch and its step, `taken` is shown each batch.
    """

    target: Any
    role: str
    batches: int = MOST_BATCHES
    seconds: float = float("inf")
    deadline: float = float("inf")
    samples: int = 0
    driven: int = 0
    errors: int = 0
    iterator: Any = None
    prepared: bool = False
    around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    taken: Callable[[Any], None] | None = None

    @property
    def step(self) -> Callable[[Any], Any] | None:
        step: Callable[[Any], Any] | None = getattr(self.target, "step", None)
        return step if self.role == "main" else None

    @property
    def workers(self) -> int:
        return int(getattr(self.target.loader, "num_workers", 0) or 0)

    def late(self) -> bool:
        return time.monotonic() > self.deadline

    def epoch(self, number: int) -> Iterator[int]:
        """Drive one epoch, yielding after each batch; the loader's iterator lives until the end."""
        if self.target.epoch_hook is not None:
            with contextlib.suppress(Exception):
                self.target.epoch_hook(self.target.loader, number)
        with self._as_role():
            self.iterator = self._begin()
            planned = self.planned()
            for count in range(planned):
                if self.late() or self.errors > MOST_ERRORS or not self._next():
                    break
                yield count
            else:
                # The code after a loader's last batch runs only when the next one is asked for.
                if planned == length_of(self.target.loader) and not self.late():
                    self._next()
            self.iterator = None

    def planned(self) -> int:
        """Return how many batches an epoch of this role has, or may have at most."""
        length = length_of(self.target.loader)
        if self.role == "worker" and length is not None and self.workers:
            length = -(-length // self.workers)
        return min(self.batches, length if length is not None else self.batches)

    def _next(self) -> bool:
        with self.around():
            return self._one()

    def _one(self) -> bool:
        """Take one batch and step; False at the end of the loader."""
        try:
            batch = next(self.iterator)
        except StopIteration:
            return False
        except Exception:  # noqa: BLE001 - the drive has told of the user's failures
            self.errors += 1
            return self.errors <= MOST_ERRORS
        self.driven += 1
        if self.driven == 1:
            self.deadline = time.monotonic() + self.seconds
        if self.taken is not None:
            self.taken(batch)
        self.samples += getattr(self.target.loader, "batch_size", None) or 1
        if self.step is not None:
            try:
                self.step(batch)
            except Exception:  # noqa: BLE001 - as above
                self.errors += 1
        return True

    def _as_role(self) -> AbstractContextManager[None]:
        if self.role == "main" or not self.workers:
            return contextlib.nullcontext()
        return torch_private.as_worker(0, self.workers, self.target.dataset)

    def _begin(self) -> Iterator[Any]:
        if self.role == "main" or not torch_private.is_loader(self.target.loader):
            return iter(self.target.loader)
        return self._fetched()

    def _fetched(self) -> Iterator[Any]:
        """Fetch as worker 0 would: its share of the sampler's batches, in this process."""
        loader = self.target.loader
        init = getattr(loader, "worker_init_fn", None)
        if init is not None and self.workers and not self.prepared:
            init(0)
        self.prepared = True
        fetcher = torch_private.fetcher_of(loader)
        if torch_private.is_iterable_dataset(loader.dataset):
            size = loader.batch_size
            places: Iterator[Any] = itertools.repeat([True] * size if size else True)
        else:
            sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
            places = itertools.islice(iter(sampler), 0, None, max(1, self.workers))
        for place in places:
            try:
                yield fetcher.fetch(place)
            except StopIteration:
                return


def unhooked() -> None:
    """Take the drive's observers out of torch again, in a process that only explains."""
    module = torch_private.fetch_module()
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        kind = getattr(module, name)
        while kind.__module__.partition(".")[0] == "dlcheck":
            kind = kind.__mro__[1]
        setattr(module, name, kind)
    for iterator in (torch_private.multiprocessing_iterator(), torch_private.stateful_iterator()):
        start = getattr(getattr(iterator, "__init__", None), "__wrapped__", None)
        if iterator is not None and start is not None:
            iterator.__init__ = start
