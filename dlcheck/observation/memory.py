"""What the processes of a loader held, epoch by epoch, and who kept it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MOST_MARKS = 128
MOST_POINTS = 512
MOST_ATTRIBUTES = 64


@dataclass(frozen=True)
class Mark:
    """The counters of one process at one moment, in bytes and counts; None where not to be had.

    `batches` and `samples` are what the process had produced (or received) in its life by then.
    `at` is `begin` (first batch of the epoch), `within` or `end` (its last batch).
    `heap` is the live C heap (mallinfo2: arenas and mapped blocks in use) after gc.collect(), and
    `heap_before` before it; `blocks` is sys.getallocatedblocks(), likewise. `anonymous` and
    `private_dirty` are smaps_rollup's after malloc_trim(0). `peak` is VmHWM since the mark before
    it, less what was resident at that mark. `shm` counts the bytes of /dev/shm that processes of
    this run made, `shm_names` their names; `mapped` is the shared memory mapped by this process.
    """

    epoch: int
    at: str = "within"
    batches: int = 0
    samples: int = 0
    heap: int | None = None
    heap_before: int | None = None
    blocks: int | None = None
    blocks_before: int | None = None
    rss: int | None = None
    anonymous: int | None = None
    private_dirty: int | None = None
    peak: int | None = None
    handles: int | None = None
    threads: int | None = None
    children: int | None = None
    shm: int | None = None
    shm_names: int | None = None
    mapped: int | None = None


@dataclass(frozen=True)
class Point:
    """Cheap counters after one batch: samples so far, live heap in bytes, allocated blocks.

    `inside` is by how much the memory in use at its highest, while the batch was made, exceeded
    what it was before; `step` likewise while the user's step ran (main only), and `returned` the
    bytes of the batch, `shipped` those of the storages behind it; None where not watched.
    """

    epoch: int
    samples: int
    heap: int | None = None
    blocks: int | None = None
    inside: int | None = None
    returned: int | None = None
    step: int | None = None
    shipped: int | None = None


@dataclass(frozen=True)
class Held:
    """How many items an attribute held: at the first look, and at each epoch's end.

    `owner` says whose it is: dataset, collate, sampler, step, hook, loader, module. `path` is what
    the user would write: `self.cache`, `_trainer.val_results`; `of` the class that it is in.
    `bound` is the maxlen of a deque, the maxsize of an lru_cache.
    """

    path: str
    type: str
    owner: str = ""
    of: str = ""
    bound: int | None = None
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Process:
    """One process: `main`, or worker `number` that was started in epoch `born`.

    `handle_kinds` counts open handles at the last mark by kind: file, socket, pipe, memory, other.
    """

    role: str = "main"
    number: int | None = None
    born: int = 0
    pid: int = 0
    persistent: bool = False
    marks: tuple[Mark, ...] = ()
    points: tuple[Point, ...] = ()
    held: dict[str, Held] = field(default_factory=dict)
    handle_kinds: dict[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def merge(self, other: Process) -> Process:
        """Join two parts of one process's life, in the order of its batches."""
        marks = {(m.epoch, m.batches, m.at): m for m in (*self.marks, *other.marks)}
        points = {(p.epoch, p.samples): p for p in (*self.points, *other.points)}
        later = self if _last(self) > _last(other) else other
        held = dict(self.held)
        for path, one in other.held.items():
            known = held.get(path)
            held[path] = one if known is None or len(one.lengths) >= len(known.lengths) else known
        for path in sorted(held)[MOST_ATTRIBUTES:]:
            del held[path]
        return Process(
            role=self.role,
            number=self.number,
            born=min(self.born, other.born),
            pid=later.pid,
            persistent=self.persistent or other.persistent,
            marks=_fewer([marks[key] for key in sorted(marks)]),
            points=_thinned([points[key] for key in sorted(points)]),
            held=held,
            handle_kinds=later.handle_kinds or self.handle_kinds or other.handle_kinds,
            missing=tuple(sorted({*self.missing, *other.missing})),
        )


@dataclass(frozen=True)
class Culprit:
    """What the probe found to keep, or to spend, a resource when it drove the loader again.

    `resource`: heap, objects, handles, threads, children, shm, cycles, shared (copy-on-write),
    peak, view, graph. `role` is the process that does it: main or worker. `attribute` as in Held;
    `line` and `text` are the user's line that allocates, opens or starts; `stored_line` the one
    that keeps it. `grew` is how much in `unit`s (bytes, or a count) over `samples` samples and
    `batches` batches; `items` how many things are kept and `type` of what; `chain` what leads to
    it (types of a cycle, frames outermost first).
    """

    resource: str
    role: str = "main"
    attribute: str = ""
    owner: str = ""
    type: str = ""
    file: str = ""
    line: int = 0
    text: str = ""
    function: str = ""
    stored_line: int = 0
    stored_text: str = ""
    grew: int = 0
    unit: str = "bytes"
    samples: int = 0
    batches: int = 0
    items: int = 0
    whole: int = 0
    chain: tuple[str, ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)


def _fewer(marks: list[Mark]) -> tuple[Mark, ...]:
    """Leave out the marks within epochs when there are very many, then all but the ends."""
    for kinds in (("begin", "end"), ("end",)):
        if len(marks) > MOST_MARKS:
            marks = [mark for mark in marks if mark.at in kinds]
    return tuple(marks[:MOST_MARKS])


def _thinned(points: list[Point]) -> tuple[Point, ...]:
    """Keep every second point until there are few enough, the first and the last among them."""
    while len(points) > MOST_POINTS:
        points = [*points[:-1:2], points[-1]]
    return tuple(points)


def _last(process: Process) -> int:
    return max((mark.batches for mark in process.marks), default=-1)
