"""Reads the counters of one process of a loader at marks and after batches."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any

from dlcheck.observers import counters, handles
from dlcheck.observers.lengths import Lengths
from dlcheck.run.torch_private import forget_dead_storages

NONE = -1
COLUMNS = ("epoch", "samples", "heap", "blocks", "inside", "returned", "step", "shipped")
WAITING = COLUMNS[4:]
WATCHED = (1, 7, 63, 511, 4095)
EVERY = 128
FLUSH = 0.5
FIRST_WITHIN, LATER_WITHIN = 40.0, 3.0
MOST_WITHIN = 6
HANDED_OVER = 0.005
MOST_LEAVES = 4_096
Part = dict[str, Any]


class Meter:
    """The counters of one process, for one split, from its first batch to its last.

    `write` takes a part of a Process in JSON. Readings wait in arrays of plain numbers, so that
    the memory of the process stays as it is.
    """

    def __init__(self, write: Callable[[Part], None], about: Part, segments: Any = None) -> None:
        self.write = write
        self.about = about
        self.segments = segments
        self.pid = os.getpid()
        self.lengths: Lengths | None = None
        self.batches = 0
        self.samples = 0
        self.epoch = about.get("born", 0)
        self.in_epoch = 0
        self.within = 0
        self.ended = True
        self.points = array("q")
        self.waiting = array("q", [NONE] * len(WAITING))
        self.flushed = time.monotonic()
        self.marked = 0.0
        self.cost = 0.0
        self.highest = NONE
        self.resident = NONE
        self.can_peak = counters.reset_peak()
        missing = counters.missing()
        self.about |= {"pid": self.pid} | ({"missing": list(missing)} if missing else {})
        # What the readings themselves load and make belongs before the first of them.
        self.read("within", sizes=False)

    def hold(self, target: Any, step: Any = None) -> None:
        """Say whose attributes are looked at, and take their lengths for the first time."""
        self.lengths = Lengths(target, step)
        self.look()

    def look(self) -> None:
        """Take the lengths of attributes once more."""
        with contextlib.suppress(Exception):
            if self.lengths is not None:
                self.lengths.look()

    def begin_epoch(self, number: int) -> None:
        """Start to count the batches of an epoch."""
        self.epoch, self.in_epoch, self.within, self.ended = number, 0, 0, False

    def watched(self) -> bool:
        """Tell whether the memory inside the coming batch is watched: an epoch's 2nd, 8th, 64th."""
        return self.can_peak and self.in_epoch in WATCHED

    def before(self) -> int | None:
        """Note what is resident before some work whose peak is wanted."""
        if not self.can_peak:
            return None
        self.fold()
        counters.trim()
        counters.reset_peak()
        return counters.status().get("VmRSS")

    def after(self, before: int | None, column: str) -> None:
        """Keep by how much the work since `before` exceeded it at its peak."""
        if before is not None:
            high = counters.status().get("VmHWM", before)
            self.waiting[WAITING.index(column)] = max(high - before, 0)

    def returned(self, batch: Any) -> None:
        """Keep the bytes of the batch, and of the storages behind it."""
        used, shipped = bytes_of(batch)
        self.waiting[WAITING.index("returned")] = used
        self.waiting[WAITING.index("shipped")] = shipped

    def fold(self) -> None:
        """Remember the peak so far, before the kernel's own is reset."""
        self.highest = max(self.highest, counters.status().get("VmHWM", NONE))

    def made(self, samples: int) -> None:
        """Count a batch."""
        self.batches += 1
        self.in_epoch += 1
        self.samples += samples

    def point(self) -> None:
        """Read the cheap counters, once the batch is handed over."""
        watched = max(self.waiting) != NONE
        if not (watched or kept(self.batches)):
            return
        heap, blocks = counters.heap(), counters.blocks()
        self.points.extend((
            self.epoch, self.samples, NONE if heap is None else heap,
            NONE if blocks is None else blocks, *self.waiting,
        ))  # fmt: skip
        for place in range(len(WAITING)):
            self.waiting[place] = NONE
        if time.monotonic() - self.flushed > FLUSH:
            self.flush()

    def passed(self) -> None:
        """Mark the begin of an epoch after its first batch, later a few where they cost little."""
        if self.in_epoch == 1:
            self.mark("begin")
        elif self.within < MOST_WITHIN and self.due():
            self.within += 1
            self.mark("within")

    def due(self) -> bool:
        """Tell whether a mark would cost a small share of the time since the last one."""
        wait = self.cost * FIRST_WITHIN * LATER_WITHIN**self.within
        return bool(time.monotonic() - self.marked > wait)

    def close(self) -> None:
        """Mark the end of a worker's epoch, once its last batch is handed over."""
        if not self.ended and self.in_epoch:
            time.sleep(HANDED_OVER)
            self.point()
            self.end()

    def end(self) -> None:
        """Mark the end of an epoch, once."""
        if self.ended or not self.batches:
            return
        self.ended = True
        # What `look` makes may set the collector off: what waits for it is read first.
        before = uncollected()
        self.look()
        self.mark("end", before)

    def mark(self, at: str, before: Part | None = None) -> None:
        """Read all counters, and hand over what waits; `before` is what was read already."""
        begun = time.monotonic()
        mark = self.read(at, before, sizes=at == "end" or self.sizes(at))
        self.marked = time.monotonic()
        self.cost = self.marked - begun
        self.flush(mark)

    def sizes(self, at: str) -> bool:
        """Tell whether smaps is read before an epoch's end, which takes most of a mark's time.

        What a worker copies is told by the begin and end of its life; between them, and in the
        main process, the heap says more, where it can be read.
        """
        return self.about.get("role") != "main" and (at == "begin" or counters.heap() is None)

    def read(self, at: str, before: Part | None = None, *, sizes: bool = True) -> Part:
        """Read all counters around a collection."""
        mark: Part = {
            "epoch": self.epoch, "at": at, "batches": self.batches, "samples": self.samples,
        }  # fmt: skip
        mark |= before or uncollected()
        self.fold()
        forget_dead_storages()
        gc.collect()
        if sizes:
            counters.trim()
        mark |= {"heap": counters.heap(), "blocks": counters.blocks()}
        rollup, status = counters.rollup() if sizes else {}, counters.status()
        if self.resident != NONE and self.can_peak:
            mark["peak"] = max(self.highest - self.resident, 0)
        kinds = handles.handle_kinds()
        if kinds is not None:
            self.about["handle_kinds"] = kinds
            mark["handles"] = sum(kinds.values())
        mark |= {
            "rss": rollup.get("Rss", status.get("VmRSS")),
            "anonymous": rollup.get("Anonymous"), "private_dirty": rollup.get("Private_Dirty"),
            "threads": status.get("Threads", threading.active_count()),
            "children": handles.children(), "mapped": handles.mapped() if sizes else None,
        }  # fmt: skip
        held = self.segments.held() if self.segments is not None else None
        if held is not None:
            mark["shm"], mark["shm_names"] = held
        counters.reset_peak()
        self.highest, self.resident = NONE, status.get("VmRSS", NONE)
        return {name: value for name, value in mark.items() if value is not None}

    def flush(self, mark: Part | None = None) -> None:
        """Write what was read since the last time."""
        width = len(COLUMNS)
        points = [
            {n: v for n, v in zip(COLUMNS, self.points[at : at + width], strict=True) if v != NONE}
            for at in range(0, len(self.points), width)
        ]
        del self.points[:]
        part = self.about | {"points": points, "marks": [] if mark is None else [mark]}
        if self.lengths is not None and mark is not None and mark["at"] == "end":
            part["held"] = self.lengths.table()
        self.write(part)
        self.flushed = time.monotonic()


def uncollected() -> Part:
    """Read what is held before a collection."""
    return {"blocks_before": counters.blocks(), "heap_before": counters.heap()}


def kept(batches: int) -> bool:
    """Tell whether a batch gets a point: each of the first, then ever fewer, some 48 a doubling."""
    return batches <= EVERY or batches % (1 << (1 + (batches // EVERY).bit_length() - 1)) == 0


def bytes_of(batch: Any) -> tuple[int, int]:
    """Return the bytes of the arrays and strings in a batch, and of the storages behind them."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    tensor, array_ = getattr(torch, "Tensor", ()), getattr(numpy, "ndarray", ())
    used, storages, queue, left = 0, {}, [batch], MOST_LEAVES
    while queue and left:
        left -= 1
        value = queue.pop()
        kind = type(value)
        with contextlib.suppress(Exception):
            if tensor and issubclass(kind, tensor):
                used += value.numel() * value.element_size()
                storage = value.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
            elif array_ and issubclass(kind, array_):
                used += value.nbytes
                storages[id(value)] = value.nbytes
            else:
                small, inner = _inside(value, kind)
                used += small
                storages[id(value)] = small
                queue.extend(inner)
    return used, sum(storages.values())


def _inside(value: Any, kind: type[Any]) -> tuple[int, list[Any]]:
    """Return the bytes of a string or picture, and what a container of Python's own holds."""
    if issubclass(kind, dict):
        return 0, list(dict.values(value))
    if issubclass(kind, list | tuple):
        return 0, list(value[:MOST_LEAVES])
    if kind in (str, bytes, bytearray):
        return len(value), []
    if hasattr(kind, "__dataclass_fields__"):
        return 0, list(vars(value).values())
    if hasattr(kind, "getbands"):
        width, height = value.size
        return width * height * len(value.getbands()), []
    return 0, []
