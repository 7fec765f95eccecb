"""What sees every sample and batch: torch's fetcher classes are replaced before workers start.

Workers made by fork inherit the replacement. Under spawn and forkserver a worker_init_fn puts it
in place and then calls the user's own. Nothing that belongs to the user is wrapped.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from dlcheck.observation import SampleId
from dlcheck.observers.batches import SampleCount, sample_leaves
from dlcheck.observers.describe import describe
from dlcheck.observers.handles import follow_segments
from dlcheck.observers.memory import Meter
from dlcheck.run import replay, torch_private
from dlcheck.run.failures import caller, failure_of
from dlcheck.run.fingerprint import fingerprint_of
from dlcheck.run.scratch import Scratch
from dlcheck.run.target import Target
from dlcheck.run.watch import Watch, die_with_parent

MOST_BATCH = 64
MOST_STATES = 8


class Fetch:
    """Observes the fetches of one fetcher. `collate` is the user's."""

    def __init__(self, watch: Watch, fetcher: Any) -> None:
        self.watch = watch
        self.fetcher = fetcher
        self.collate = fetcher.collate_fn
        self.worker = torch_private.worker_number()
        self.yielded = 0
        self.split: str | None = None
        self.watched = False
        self.states = 0
        self.meter: Meter | None = None
        self.metered = False
        self.resident: int | None = None
        self.size = 1
        watch.scratch.begin()
        if self.worker is not None:
            die_with_parent()
        # Started before any drive: which split it belongs to is told by its dataset alone.
        early = self.worker is not None and not watch.driving and not watch.spawned
        self.mine = id(fetcher.dataset) if early else 0
        self.generators = replay.generators(dataset=fetcher.dataset, collate=self.collate)
        self.capture()

    def name(self) -> str:
        """Name the next sample of a stream: `w0#12`, or `#12` in the main process."""
        place = "" if self.worker is None else f"w{self.worker}"
        return f"{place}#{self.yielded}"

    def asking(self, index: Any) -> SampleId:
        """Note the sample that is asked for, and return its id."""
        known = type(index) is int or type(index) is str
        sample = index if known else self.plain(index)
        self.watch.scratch.ask(sample)
        return sample

    @staticmethod
    def plain(index: Any) -> SampleId:
        """Turn an index of any type into an id."""
        with contextlib.suppress(Exception):
            if hasattr(index, "__index__"):
                return int(index)
        try:
            return repr(index)[:80]
        except Exception:  # noqa: BLE001 - __repr__ is user code
            return type(index).__name__

    def begin(self) -> None:
        """Find out whether the next batch is one that is watched."""
        # Workers that outlive their split prefetch still, and belong to no other.
        self.watched = self.watch.follow() and self.split in {None, self.watch.split}
        if self.mine in self.watch.foreign:
            self.watched = False
        if self.watched:
            self.split = self.watch.split
            if self.watch.metering:
                self.read_counters()

    def read_counters(self) -> None:
        """Read the counters before the next batch: a worker has handed its last one over by now.

        A loader makes a fetcher for each epoch, also in workers that outlive one.
        """
        meter = self.meter = self.watch.meter(self.worker)
        if meter is None:
            return
        if self.watch.metering < 0:
            self.close_counting(meter)
            return
        if self.worker is not None:
            if self.metered and meter.in_epoch:
                meter.point()
                meter.passed()
            elif not self.metered:
                self.begin_counting(meter)
        self.metered = True
        self.resident = meter.before() if meter.watched() else None

    def close_counting(self, meter: Meter) -> None:
        """Mark the end of the last epoch in this worker; what it still makes is no one's."""
        self.watched = False
        if not self.metered:
            meter.close()
        self.metered, self.meter = True, None

    def begin_counting(self, meter: Meter) -> None:
        """Close the epoch before in this worker, and begin the next one."""
        if meter.lengths is None:
            loader = SimpleNamespace(collate_fn=self.collate)
            meter.hold(Target(loader, self.fetcher.dataset))
            torch_private.at_worker_end(meter.close)
        meter.close()
        meter.begin_epoch(self.watch.epoch)

    def fetched(self, batch: Any) -> Any:
        """Note what it took to make the batch, which is passed on."""
        meter = self.meter
        if meter is not None and self.watched:
            if self.resident is not None:
                meter.after(self.resident, "inside")
                meter.returned(batch)
            if self.worker is not None:
                meter.made(self.size)
        return batch

    def begin_batch(self) -> None:
        """Remember the random state in which the next batch is drawn."""
        self.begin()
        if self.watched and not self.watch.spread:
            self.capture()

    def capture(self) -> None:
        """Keep the random state; it outlives this fetcher, so that no last mark lacks its bytes."""
        self.state = self.watch.state = replay.capture(self.generators)

    def replayable(self) -> dict[str, Any]:
        """Keep the random state for the probe; returns what it needs besides, for a failure."""
        self.states += 1
        name = f"state-{self.watch.scratch.pid}-{self.states}"
        detail: dict[str, Any] = {"num_workers": torch_private.number_of_workers()}
        if self.states <= MOST_STATES and replay.save(
            self.state, Path(self.watch.scratch.folder) / name
        ):
            detail["state"] = name
        return detail

    def failed_sample(
        self, error: BaseException, sample: SampleId | None, batch: Sequence[SampleId] = ()
    ) -> None:
        """Write that producing a sample raised; None when only the batch is known."""
        if not self.watched:
            return
        at = [] if sample is None else [sample]
        detail = {"dataset": type(self.fetcher.dataset).__name__, "sample": at}
        detail |= self.replayable()
        failure = failure_of(
            error, "sample", at=at, batch=list(batch), worker=self.worker, detail=detail
        )
        self.watch.fail(failure, error)

    def collated(self, data: Any, ids: list[SampleId]) -> Any:
        """Count the samples of a batch, join them as the user does, and write what was seen."""
        if not self.watched:
            return self.collate(data)
        self.watch.hooked = True
        self.size = len(ids)
        part = self.valued(data, ids) if self.watch.values else {}
        part |= {"samples": len(ids), "batch_sizes": {str(len(ids)): {"n": 1, "at": ids[:1]}}}
        if self.watch.spread:
            part |= {"samples": 0, "spread": len(ids), "batch_sizes": {}}
        elif self.watch.epoch:
            part |= {"samples": 0, "again": len(ids)}
        self.watch.note(**part)
        try:
            return self.collate(data)
        except BaseException as error:
            self.failed_collate(error, data, ids)
            raise

    def valued(self, data: Any, ids: list[SampleId]) -> dict[str, Any]:
        """Look at the samples of a batch, and return what was seen as a part of a Split."""
        memory = self.watch.memories[self.watch.split]
        memory.again = self.watch.epoch > 0
        seen = SampleCount(self.watch.names, memory)
        # What `__getitems__` returns in place of a list may be read only once, or is no samples.
        for index, sample in zip(ids, data if isinstance(data, list | tuple) else (), strict=False):
            seen.add(index, sample)
        return seen.split(drawn=not self.watch.spread)

    def failed_collate(self, error: BaseException, data: Any, ids: list[SampleId]) -> None:
        """Write that a batch could not be joined, with what its samples were."""
        samples = data if isinstance(data, list | tuple) else ()
        pairs = list(zip(ids[:MOST_BATCH], samples, strict=False))
        leaves = [(index, describe(sample, names=self.watch.names)) for index, sample in pairs]
        described = [sample_leaves(index, found) for index, found in leaves]
        detail = self.replayable()
        detail["prints"] = {str(index): fingerprint_of(found) for index, found in leaves}
        failure = failure_of(
            error, "collate", batch=ids[:MOST_BATCH], samples=described, worker=self.worker,
            detail=detail,
        )  # fmt: skip
        self.watch.fail(failure, error)


def _map_fetcher(base: Any, watch: Watch) -> Any:
    class MapFetcher(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.observed = Fetch(watch, self)

        def fetch(self, possibly_batched_index: Any) -> Any:
            with watch.outermost() as mine:
                if not mine:
                    return super().fetch(possibly_batched_index)
                batch = _fetch_map(self, self.observed, possibly_batched_index)
                return self.observed.fetched(batch)

    return MapFetcher


def _fetch_map(fetcher: Any, observed: Fetch, possibly_batched_index: Any) -> Any:
    """Do what torch's fetcher does, knowing at each moment which sample is asked for."""
    dataset = fetcher.dataset
    sample: SampleId = ""
    ids: list[SampleId] = []
    asked: Asked | None = None
    observed.begin_batch()
    try:
        if not fetcher.auto_collation:
            sample = observed.asking(possibly_batched_index)
            data = dataset[possibly_batched_index]
        elif hasattr(dataset, "__getitems__") and dataset.__getitems__:
            ids = [observed.plain(index) for index in possibly_batched_index]
            asked = Asked(possibly_batched_index, observed)
            one_by_one = torch_private.is_subset(dataset)
            data = dataset.__getitems__(asked if one_by_one else possibly_batched_index)
        else:
            data = []
            for index in possibly_batched_index:
                sample = observed.asking(index)
                ids.append(sample)
                data.append(dataset[index])
    except BaseException as error:
        observed.failed_sample(error, asked.current if asked is not None else sample, ids)
        raise
    if not fetcher.auto_collation:
        return observed.collate(data)
    return observed.collated(data, ids)


class Asked(list[Any]):
    """The indices of a batch; knows which one torch's Subset is at.

    `current` is None before the first and after the last: then no one sample is to blame.
    """

    def __init__(self, indices: Any, observed: Fetch) -> None:
        super().__init__(indices)
        self.observed = observed
        self.current: SampleId | None = None

    def __iter__(self) -> Iterator[Any]:
        for index in super().__iter__():
            self.current = self.observed.asking(index)
            yield index
        self.current = None


def _iterable_fetcher(base: Any, watch: Watch) -> Any:
    class IterableFetcher(base):  # type: ignore[misc]
        def __init__(self, dataset: Any, *args: Any, **kwargs: Any) -> None:
            try:
                super().__init__(dataset, *args, **kwargs)
            except BaseException as error:
                if watch.follow():
                    watch.fail(failure_of(error, "iter"), error)
                raise
            self.observed = Fetch(watch, self)

        def fetch(self, possibly_batched_index: Any) -> Any:
            with watch.outermost() as mine:
                if not mine:
                    return super().fetch(possibly_batched_index)
                batch = _fetch_iterable(self, self.observed, possibly_batched_index)
                return self.observed.fetched(batch)

    return IterableFetcher


def _fetch_iterable(fetcher: Any, observed: Fetch, possibly_batched_index: Any) -> Any:
    """Do what torch's fetcher does, numbering the samples of the stream."""
    if fetcher.ended:
        raise StopIteration
    observed.begin()
    if not fetcher.auto_collation:
        return observed.collate(_next(fetcher, observed))
    ids: list[SampleId] = []
    data = []
    for _ in possibly_batched_index:
        try:
            sample = observed.name()
            data.append(_next(fetcher, observed))
            ids.append(sample)
        except StopIteration:
            fetcher.ended = True
            break
    short = fetcher.drop_last and len(data) < len(possibly_batched_index)
    if len(data) == 0 or short:
        raise StopIteration
    return observed.collated(data, ids)


def _next(fetcher: Any, observed: Fetch) -> Any:
    sample = observed.asking(observed.name())
    try:
        value = next(fetcher.dataset_iter)
    except StopIteration:
        raise
    except BaseException as error:
        observed.failed_sample(error, sample)
        raise
    observed.yielded += 1
    return value


class WorkerInit:
    """worker_init_fn for spawn and forkserver: hooks first, then the user's own function."""

    def __init__(self, watch: Watch, user: Callable[[int], None] | None) -> None:
        self.folder = watch.scratch.folder
        self.split = watch.split
        self.names = watch.names
        self.epoch = watch.epoch
        self.persistent = watch.persistent
        self.loaders = watch.loaders
        self.metering = watch.metering
        self.user = user

    def __call__(self, worker: int) -> None:
        watch = Watch(Scratch(self.folder), self.split)
        watch.spawned = True
        watch.epoch = self.epoch
        watch.names = self.names
        watch.persistent, watch.loaders = self.persistent, self.loaders
        if self.metering:
            follow_segments(self.folder)
        install(watch)
        if self.user is not None:
            self.user(worker)


def install(watch: Watch) -> list[str]:
    """Put the hooks in place; returns what could not be, for the report."""
    missing: list[str] = []
    try:
        fetch = torch_private.fetch_module()
    except (ImportError, AttributeError) as error:
        return [f"samples: this torch has no {error}"]
    fetch._MapDatasetFetcher = _map_fetcher(fetch._MapDatasetFetcher, watch)  # noqa: SLF001
    fetch._IterableDatasetFetcher = _iterable_fetcher(  # noqa: SLF001
        fetch._IterableDatasetFetcher,  # noqa: SLF001
        watch,
    )
    try:
        _follow_workers(torch_private.multiprocessing_iterator(), watch)
    except (ImportError, AttributeError) as error:
        missing.append(f"spawned workers: this torch has no {error}")
    return missing


def follow_stateful(watch: Watch) -> None:
    """Do the same for torchdata's StatefulDataLoader, once the user's code has imported it."""
    iterator = torch_private.stateful_iterator()
    if iterator is not None and not hasattr(iterator.__init__, "__wrapped__"):
        _follow_workers(iterator, watch)


def _follow_workers(iterator: Any, watch: Watch) -> None:
    """Give workers that are not forked our worker_init_fn while they are started, no longer."""
    start = iterator.__init__

    @functools.wraps(start)
    def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        watch.hooked |= bool(getattr(loader, "_auto_collation", False))
        user = loader.worker_init_fn
        context = loader.multiprocessing_context or sys.modules["torch.multiprocessing"]
        watch.loaders += 1
        if context.get_start_method() == "fork":
            start(self, loader, *args, **kwargs)
            return
        loader.worker_init_fn = WorkerInit(watch, user)
        try:
            start(self, loader, *args, **kwargs)
        finally:
            loader.worker_init_fn = user

    iterator.__init__ = __init__


def note_construction(watch: Watch) -> None:
    """Remember the user's line that makes each DataLoader."""
    from torch.utils.data import DataLoader

    start = DataLoader.__init__

    @functools.wraps(start)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        frame = _maker(caller(), self)
        if frame is not None:
            watch.made_at[id(self)] = (frame.f_code.co_filename, frame.f_lineno)
        start(self, *args, **kwargs)

    DataLoader.__init__ = __init__


def _maker(frame: FrameType | None, loader: Any) -> FrameType | None:
    """Go up from the __init__ of a subclass to the line that makes the loader."""
    while frame is not None and frame.f_code.co_name == "__init__":
        first = frame.f_code.co_varnames[:1]
        if not first or frame.f_locals.get(first[0]) is not loader:
            return frame
        frame = caller(frame.f_back) if frame.f_back else None
    return frame
