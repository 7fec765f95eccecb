"""The drives that explain: each runs in a fork of its own, and returns plain data.

`keep` says which attributes grew and which lines allocate what stays; `lines` which lines open,
start and store; `spend` where memory peaks; `collect` what only the collector frees; `share` what
objects a worker inherits, and which lines read them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MethodType
from typing import Any

from dlcheck.observers import counters, starters
from dlcheck.observers.allocations import Allocations, kept
from dlcheck.observers.attributes import Census, Node, Walk
from dlcheck.observers.cycles import pinned
from dlcheck.observers.grown import Grown, Growth, meter
from dlcheck.observers.natives import Natives
from dlcheck.observers.peaks import Peaks
from dlcheck.observers.roots import roots_of
from dlcheck.observers.sizes import Sizes
from dlcheck.observers.starters import Lines, Place
from dlcheck.observers.views import Views
from dlcheck.run.failures import is_user
from dlcheck.run.rounds import MOST_BATCHES, Rounds

FIRST = 2
NEAREST = 8
TRACKED = 2
TRACED_BATCHES = 12
TRACED_EPOCHS = 4
MOST_METERS = 6
MOST_ROWS = 12
MOST_PINNED = 1 << 30
PEAK_BATCHES = 6
OF = {
    "heap": "bytes", "view": "bytes", "objects": "objects", "graph": "graphs", "shm": "shared",
    "handles": "handles", "threads": "threads", "children": "children",
}  # fmt: skip
SETS: dict[str, Callable[[], Any]] = {
    "handles": starters.Handles, "threads": lambda: starters.threads,
    "children": lambda: starters.children, "shm": lambda: starters.segments,
}  # fmt: skip
Data = dict[str, Any]


@dataclass
class Job:
    """What one pass is to do, and how long it may take."""

    target: Any
    role: str
    resources: tuple[str, ...]
    batches: int
    seconds: float

    def rounds(self, share: float = 0.8) -> Rounds:
        """Begin a drive that ends within a share of the pass's time."""
        batches = self.batches or MOST_BATCHES
        return Rounds(self.target, self.role, batches, share * self.seconds)

    def roots(self, rounds: Rounds) -> Any:
        return roots_of(self.target, rounds.step, rounds.iterator)


class Looks:
    """The censuses of one drive, with heap and blocks at the same moments."""

    def __init__(self, job: Job, rounds: Rounds) -> None:
        self.job = job
        self.rounds = rounds
        self.censuses: list[Census] = []
        self.heaps: list[int] = []
        self.blocks: list[int] = []
        self.driven: list[tuple[int, int]] = []
        self.own = 0

    def take(self) -> None:
        gc.collect()
        before = counters.heap() or 0
        self.heaps.append(before - self.own)
        self.blocks.append(counters.blocks() or 0)
        self.driven.append((self.rounds.samples, self.rounds.driven))
        known = self.censuses[-1] if self.censuses else None
        self.censuses.append(Walk(known).run(self.job.roots(self.rounds)))
        self.own += (counters.heap() or 0) - before


def keep(job: Job) -> Data:
    """Drive a warm epoch and two more, and say which attributes grew over them."""
    rounds = job.rounds(0.6)
    looks = Looks(job, rounds)
    at_ends(looks.take, rounds, job.seconds)
    if len(looks.censuses) < 2:  # noqa: PLR2004 - nothing to compare
        return {}
    wanted = dict.fromkeys(OF[one] for one in ("heap", *job.resources) if one in OF)
    grown = {of: [_told(one) for one in Growth(looks.censuses, of).found()] for of in wanted}
    first, last = looks.driven[min(1, len(looks.driven) - 1)], looks.driven[-1]
    return {
        "grown": grown, "heaps": looks.heaps, "blocks": looks.blocks,
        "samples": last[0] - first[0] or last[0], "batches": last[1] - first[1] or last[1],
        "samples_in_all": last[0], "batches_in_all": last[1],
        "cut": any(census.cut for census in looks.censuses),
    }  # fmt: skip


def allocate(job: Job) -> Data:
    """Drive the same epochs, and say which lines allocated what is there at their ends."""
    rounds = job.rounds(0.6)
    allocations = Allocations()
    helds: list[Any] = []

    def take() -> None:
        gc.collect()
        if helds:
            helds.append(allocations.held())
            return
        helds.append({})
        allocations.begin()
        rounds.around = allocations.watching

    at_ends(take, rounds, job.seconds)
    rows = kept(helds)[:MOST_ROWS] if len(helds) > 1 else []
    allocations.end()
    return {
        "rows": [[*line, grew, blocks] for line, grew, blocks in rows],
        "samples": rounds.samples, "batches": rounds.driven,
    }  # fmt: skip


def at_ends(take: Callable[[], None], rounds: Rounds, seconds: float) -> None:
    """Take a look after the first batches, then at each epoch's last one, before it is let go."""
    for number in range(1 + TRACKED):
        planned = rounds.planned()
        looked = False
        for count in rounds.epoch(number):
            if number == 0 and count == 0:
                whole = rounds.deadline
                rounds.deadline = time.monotonic() + seconds / 4
            if number == 0 and count == min(FIRST, planned) - 1 and planned > 1:
                take()
            elif count == planned - 1:
                take()
                looked = True
        if not rounds.driven:
            return
        if not looked:
            take()
        rounds.deadline = whole
        if number == 0:
            rounds.batches = max(1, min(rounds.batches, rounds.driven))
        if rounds.late():
            return


def _told(one: Grown) -> Data:
    """Turn what grew into plain data."""
    node = one.node
    return {
        "full": node.full, "name": one.name, "owner": node.owner, "cls": node.cls,
        "type": node.type, "item": node.item, "bound": node.bound, "length": node.length,
        "lengths": one.lengths, "series": one.series, "grew": one.grew, "late": one.late,
        "objects": one.objects, "graphs": one.graphs, "used": one.used, "whole": one.whole,
        "shared": one.shared, "file": file_of(node), "key": str(node.key),
    }  # fmt: skip


def file_of(node: Node) -> str:
    """Name the file of the user's that holds the code of a name's owner."""
    holder = node.holder
    if node.kind in ("cell", "default", "local"):
        function = holder.__func__ if isinstance(holder, MethodType) else holder
        code = getattr(function, "__code__", None) or getattr(function, "gi_code", None)
        return str(getattr(code, "co_filename", ""))
    if node.kind == "global":
        return str(getattr(holder, "__file__", "") or "")
    kind = holder if isinstance(holder, type) else type(holder)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file if isinstance(file, str) and is_user(file) else ""


def lines(job: Job, grown: list[str]) -> Data:
    """Drive again from the start, following the user's lines."""
    rounds = job.rounds()
    sets = {name: SETS[name]() for name in job.resources if name in SETS}
    watched: Lines | None = None
    for number in range(TRACED_EPOCHS):
        if number == 0 and grown:
            # The names that grew are found once the step has made what it makes.
            epoch = rounds.epoch(0)
            first = list(zip(range(min(FIRST, rounds.planned())), epoch, strict=False))
            census = Walk().run(job.roots(rounds)) if first else Census()
            watched = Lines(sets, _meters(census, grown), rounds.deadline)
        else:
            epoch = rounds.epoch(number)
            watched = watched or Lines(sets, {}, rounds.deadline)
        _traced(watched, epoch, rounds)
        if rounds.late() or watched.stopped:
            break
    if watched is None:
        return {}
    return {
        "left": {name: [_left(one) for one in watched.left(name)[:3]] for name in sets},
        "keepers": {name: _place(watched.keeper(name)) for name in watched.meters},
        "samples": rounds.samples, "batches": rounds.driven,
    }  # fmt: skip


def _meters(census: Census, grown: list[str]) -> dict[str, Callable[[], Any]]:
    found = {}
    for full in grown[:MOST_METERS]:
        node = census.nodes.get(full)
        read = meter(node) if node is not None else None
        if read is not None:
            found[full] = read
    return found


def _traced(watched: Lines, epoch: Iterator[int], rounds: Rounds) -> None:
    """Follow the first batches of an epoch; what comes after them runs at full speed."""
    with watched.watching():
        for count in epoch:
            watched.deadline = rounds.deadline
            if count >= TRACED_BATCHES:
                break
    for _ in epoch:
        pass
    watched.resume()


def _left(one: starters.Left) -> Data:
    return {"count": one.count, "names": one.names[:3], **(_place(one.place) or {})}


def _place(place: Place | None) -> Data | None:
    if place is None:
        return None
    return {**dataclasses.asdict(place), "text": place.text}


def stay(job: Job) -> Data:
    """Drive an epoch line by line after a first one, and say which lines' memory stays."""
    rounds = job.rounds()
    watched: Natives | None = None

    def around() -> Any:
        return watched.watching() if watched is not None else contextlib.nullcontext()

    rounds.around = around
    for number in range(1 + TRACKED):
        for count in rounds.epoch(number):
            if watched is not None:
                watched.settle()
            elif count == FIRST:
                watched = Natives(rounds.deadline)
                begun = rounds.samples, rounds.driven
            if watched is not None and count > FIRST + TRACED_BATCHES:
                break
        if rounds.late():
            break
    if watched is None:
        return {}
    gc.collect()
    watched.settle()
    return {
        "stayed": [
            {**(_place(place) or {}), "bytes": size, "times": times}
            for place, size, times in watched.stayed()[:3]
        ],
        "samples": rounds.samples - begun[0], "batches": rounds.driven - begun[1],
    }  # fmt: skip


def ship(job: Job) -> Data:
    """Drive a few batches line by line, and say which fields are small views of large storages."""
    rounds = job.rounds()
    views = Views(rounds.deadline)
    rounds.around = views.watching
    rounds.taken = views.batch
    for count in rounds.epoch(0):
        views.deadline = rounds.deadline
        if count >= PEAK_BATCHES:
            break
    fields = sorted(views.fields.items(), key=lambda item: item[1][0] - item[1][1])
    return {
        "views": [
            {"field": f, "used": used, "whole": whole, "place": _place(views.places.get(f))}
            for f, (used, whole, _) in fields[:3]
        ],
        "samples": rounds.samples, "batches": rounds.driven,
    }  # fmt: skip


def spend(job: Job) -> Data:
    """Drive a few batches line by line and say during which one most memory was needed."""
    rounds = job.rounds()
    sizes = Sizes()
    rows: list[int] = []
    peaks: Peaks | None = None

    def around() -> Any:
        return _measured(peaks) if peaks is not None else contextlib.nullcontext()

    rounds.around = around
    rounds.taken = lambda batch: rows.append(sizes.bytes_of(batch))
    for count in rounds.epoch(0):
        peaks = peaks or Peaks(rounds.deadline)
        if count >= PEAK_BATCHES:
            break
    found = peaks.worst_lines() if peaks is not None and peaks.able else []
    return {
        "peaks": [
            {**(_place(p.place) or {}), "highest": p.highest, "own": p.own} for p in found
        ],
        "highest": peaks.overall if peaks is not None and peaks.able else 0,
        "returned": max(rows, default=0), "samples": rounds.samples, "batches": rounds.driven,
    }  # fmt: skip


@contextlib.contextmanager
def _measured(peaks: Peaks) -> Iterator[None]:
    peaks.begin()
    with peaks.watching():
        yield
    peaks.end()


def collect(job: Job) -> Data:
    """Drive an epoch with the collector off, and keep what it then finds."""
    rounds = job.rounds(0.6)
    samples = batches = begun = 0
    for number in range(2):
        planned = rounds.planned()
        for count in rounds.epoch(number):
            if number == 0 and count == min(FIRST, planned) - 1:
                gc.collect()
                tracemalloc.start(NEAREST)
                gc.disable()
                gc.set_debug(gc.DEBUG_SAVEALL)
                begun = counters.heap() or 0
                samples, batches = rounds.samples, rounds.driven
            if (counters.heap() or 0) - begun > MOST_PINNED:
                break
        if rounds.late() or rounds.driven > FIRST:
            break
    gc.collect()
    gc.set_debug(0)
    garbage = list(gc.garbage)
    gc.garbage.clear()
    found = [dataclasses.asdict(one) for one in pinned(garbage)[:3]]
    return {
        "cycles": found, "samples": rounds.samples - samples, "batches": rounds.driven - batches,
    }  # fmt: skip


def share(job: Job) -> Data:
    """Count the objects of each attribute before anything is drawn; follow which are read."""
    rounds = job.rounds()
    census = Walk().run(job.roots(rounds))
    growth = Growth([Census(), census], "objects")
    found = [_told(one) for one in growth.found()]
    watched = Lines({}, {}, rounds.deadline)
    with watched.watching():
        for count in rounds.epoch(0):
            watched.deadline = rounds.deadline
            if count >= PEAK_BATCHES:
                break
    executed = [[file, line] for file, line in watched.lines]
    bytes_of = census.totals("bytes")
    for one in found:
        one["bytes"] = bytes_of.get(one["full"], 0)
    return {
        "grown": found, "executed": executed, "samples": rounds.samples, "batches": rounds.driven,
    }  # fmt: skip


def settle() -> None:
    """Make a pass quick, and the processes that it starts as the user's own would be: untraced."""
    from dlcheck.run.watch import die_with_parent

    def after() -> None:
        sys.settrace(None)
        tracemalloc.stop()
        gc.set_debug(0)
        gc.enable()
        die_with_parent()

    os.register_at_fork(after_in_child=after)
    torch = sys.modules.get("torch")
    if torch is not None:
        # The threads of a pool that was there before the fork are not there now.
        torch.set_num_threads(1)
    gc.freeze()
