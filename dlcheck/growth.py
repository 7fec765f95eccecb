"""What grew: a verdict for each resource of a split's processes, from their marks and points.

A process that lives through several epochs is judged from one epoch's end to the next, the first
epoch being its warm-up. One that ends with its epoch is judged over the later half of its life:
what it inherited, opened or imported before does not count. Figures of the live heap are exact and
were taken after gc.collect(), so that what one loader does without a leak scatters by a few KiB;
how far this one scatters is read off its own batches.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dlcheck.observation import Mark, Point, Process, Split

GROWING, SATURATING, COPYING, FLAT, UNKNOWN = (
    "growing", "saturating", "copy-on-write", "flat", "unknown",
)  # fmt: skip
GREW = (GROWING, SATURATING, COPYING)
KIB, MIB = 1 << 10, 1 << 20

# What an interval may add to a count or to bytes before noise is asked: below it lies what the
# loop itself, the interpreter's caches and the reading of /proc leave behind.
FLOORS = {
    "heap": 12 * KIB,
    "objects": 96,
    "resident": 2 * MIB,
    "copied": MIB,
    "shm": 0,
    "mapped": 64 * KIB,
    "handles": 0,
    "threads": 0,
    "children": 0,
}


def _copied(mark: Mark) -> int | None:
    """Return the pages that a forked process made its own without holding more."""
    if mark.private_dirty is None or mark.anonymous is None:
        return None
    return mark.private_dirty - mark.anonymous


READ: dict[str, Callable[[Mark], int | None]] = {
    "heap": lambda mark: mark.heap,
    "objects": lambda mark: mark.blocks,
    "resident": lambda mark: mark.anonymous,
    "copied": _copied,
    "shm": lambda mark: mark.shm,
    "mapped": lambda mark: mark.mapped,
    "handles": lambda mark: mark.handles,
    "threads": lambda mark: mark.threads,
    "children": lambda mark: mark.children,
}
READ_POINT: dict[str, Callable[[Point], int | None]] = {
    "heap": lambda point: point.heap,
    "objects": lambda point: point.blocks,
}
# Shared memory is counted once for the whole run, by the main process.
ROLES = {"shm": ("main",), "mapped": ("main",), "copied": ("worker",)}
BOTH = ("main", "worker")
# Counts of things that come and go whole: every one of them was opened or started.
EXACT = ("shm", "mapped", "handles", "threads", "children")

FEW_POINTS = 6
MOST_PAIRS = 64
LEVELS_OFF = 0.7
MOST_LIVES = 2 / 3
LATE_LIFE = 0.5
SURE = 8
SPREAD = 1 / 2
WINDOWS = 8
FEWEST_WINDOWS = 3
SIGMAS = 4
MAD = 1.4826


# What starts up and is closed inside one life weighs more.
SHORT_FLOORS = {"heap": 64 * KIB, "objects": 512}


@dataclass(frozen=True)
class Growth:
    """One resource in the processes of one role.

    `start`, `end` and `series` are of the `process` that grew most; `per_epoch`, `per_sample` and
    `per_batch` are what one such process gains, `processes` how many showed it, and `epochs` how
    many were compared. `within`: it
    was seen inside lives of one epoch, and is thrown away with the process. `sure`: nobody has to
    confirm it. `late`: flat until the last epoch, which added something. `noise` is what an epoch
    adds without a leak.
    """

    resource: str
    role: str
    state: str
    process: str = ""
    start: int | None = None
    end: int | None = None
    per_epoch: float = 0.0
    per_sample: float = 0.0
    per_batch: float = 0.0
    processes: int = 0
    of: int = 0
    epochs: int = 0
    within: bool = False
    sure: bool = False
    late: bool = False
    noise: float = 0.0
    series: tuple[int, ...] = ()

    @property
    def grew(self) -> bool:
        return self.state in GREW


@dataclass(frozen=True)
class _Life:
    """What one process showed of one resource: a state, and growth an epoch, sample and batch."""

    name: str
    state: str
    start: int
    end: int
    per_epoch: float = 0.0
    per_sample: float = 0.0
    per_batch: float = 0.0
    noise: float = 0.0
    within: bool = False
    sure: bool = False
    late: bool = False
    series: tuple[int, ...] = ()


def growths(split: Split) -> list[Growth]:
    """Judge every resource of every role of which there are figures."""
    found = [
        growth_of(split, resource, role)
        for role in BOTH
        for resource in READ
        if role in ROLES.get(resource, BOTH)
    ]
    return [one for one in found if one is not None]


def growth_of(split: Split, resource: str, role: str) -> Growth | None:
    """Judge one resource of one role; None where there is no figure of it."""
    processes = {n: p for n, p in split.processes.items() if p.role == role and p.marks}
    return judged(resource, role, processes) if processes else None


def judged(resource: str, role: str, processes: dict[str, Process]) -> Growth | None:
    """Judge one resource over the processes of one role, which do the same work."""
    lives = [life(name, process, resource) for name, process in processes.items()]
    seen = [one for one in lives if one is not None]
    if not seen:
        return None
    known = [one for one in seen if one.state != UNKNOWN]
    grown = [one for one in known if one.state in GREW]
    most = max(grown or known or seen, key=lambda one: one.per_epoch)
    state = most.state
    if grown and not _agree(grown, known):
        state = FLAT
    elif grown and state != COPYING:
        growing = sum(one.state == GROWING for one in grown)
        state = GROWING if growing * 2 >= len(grown) else SATURATING
    return Growth(
        resource, role, state, most.name, most.start, most.end,
        per_epoch=_middle(grown, "per_epoch", most),
        per_sample=_middle(grown, "per_sample", most),
        per_batch=_middle(grown, "per_batch", most),
        processes=len(grown) if state in GREW else 0, of=len(known),
        epochs=0 if most.within else len(most.series), within=most.within,
        sure=state in GREW and state != SATURATING and _mostly(grown, "sure"),
        late=state == FLAT and any(one.late for one in known),
        noise=most.noise, series=most.series,
    )  # fmt: skip


def _agree(grown: list[_Life], known: list[_Life]) -> bool:
    """Tell whether enough processes grew: most of them, or one by far more than its noise."""
    strong = any(one.per_epoch > SURE * max(one.noise, 1) and not one.within for one in grown)
    return strong or len(grown) >= MOST_LIVES * len(known)


def _mostly(lives: list[_Life], name: str) -> bool:
    return sum(bool(getattr(one, name)) for one in lives) * 2 > len(lives)


def _middle(grown: list[_Life], name: str, most: _Life) -> float:
    return float(statistics.median(getattr(one, name) for one in grown or [most]))


def life(name: str, process: Process, resource: str) -> _Life | None:
    """Judge one process; None where it has no figure of the resource."""
    read = READ[resource]
    marks = [mark for mark in process.marks if read(mark) is not None]
    if not marks:
        return None
    if resource == "copied":
        return _copies(name, marks)
    points = _points(process, resource)
    ends = _ends(marks)
    if len({mark.epoch for mark in ends}) > 1:
        return _long(name, resource, ends, points)
    return _short(name, resource, marks, points)


def _copies(name: str, marks: list[Mark]) -> _Life:
    """Judge copies of pages over a whole life: they end when every page was written to once."""
    values = [_copied(mark) or 0 for mark in marks]
    epochs = marks[-1].epoch - marks[0].epoch + 1
    grew, noise = values[-1] - values[0], FLOORS["copied"] * (1 + epochs / 4)
    samples = max(marks[-1].samples - marks[0].samples, 1)
    state = COPYING if grew > noise else FLAT if len(marks) > 1 else UNKNOWN
    return _Life(
        name, state, values[0], values[-1], grew / epochs, grew / samples, noise=noise,
        within=epochs == 1, series=tuple(values),
    )  # fmt: skip


def _ends(marks: Sequence[Mark]) -> list[Mark]:
    """Choose each epoch's end; where none was taken there are no epochs to compare."""
    last: dict[int, Mark] = {mark.epoch: mark for mark in marks if mark.at == "end"}
    return [last[epoch] for epoch in sorted(last)]


def _points(process: Process, resource: str) -> list[tuple[int, int, int]]:
    """List (epoch, samples, value) of a process's batches, in order."""
    read = READ_POINT.get(resource)
    found = [] if read is None else [(p.epoch, p.samples, read(p)) for p in process.points]
    return sorted((e, s, v) for e, s, v in found if v is not None)


def _long(name: str, resource: str, ends: list[Mark], points: list[tuple[int, int, int]]) -> _Life:
    """Compare the ends of epochs; all of what they added must exceed the noise."""
    read = READ[resource]
    values = [read(mark) or 0 for mark in ends]
    steps = [after - before for before, after in itertools.pairwise(values)]
    noise = _noise(resource, points)
    whole = (name, values[0], values[-1])
    state = _state(steps, noise)
    if state == FLAT:
        return _Life(whole[0], FLAT, *whole[1:], statistics.median(steps), noise=noise,
                     late=steps[-1] > noise, series=tuple(values))  # fmt: skip
    samples = max(ends[-1].samples - ends[0].samples, 1)
    batches = max(ends[-1].batches - ends[0].batches, 1)
    grew = values[-1] - values[0]
    later = [point for point in points if point[0] > ends[0].epoch]
    spread = resource in EXACT or _spread_out(later, noise)
    sure = state == GROWING and len(steps) > 1 and spread
    return _Life(
        whole[0], state, *whole[1:], statistics.median(steps), grew / samples,
        grew / batches, noise, sure=sure, series=tuple(values),
    )  # fmt: skip


def _state(steps: list[int], noise: float) -> str:
    """Name the way of a series by what each epoch added.

    One epoch in which something was released is tolerated where there are three or more. What
    rose for two epochs after the warm-up and then no more has filled up.
    """
    rises = sum(step > noise for step in steps)
    allowed = 1 if len(steps) > 2 else 0  # noqa: PLR2004
    if rises < len(steps) - allowed or statistics.median(steps) <= noise or sum(steps) <= noise:
        filled = len(steps) > 2 and min(steps[:2]) > 2 * noise  # noqa: PLR2004
        return SATURATING if filled else FLAT
    half = len(steps) // 2
    if half and statistics.mean(steps[-half:]) < LEVELS_OFF * statistics.mean(steps[:half]):
        return SATURATING
    return GROWING


def _noise(resource: str, points: list[tuple[int, int, int]]) -> float:
    """Say how much an epoch may seem to add without a leak, from the scatter of its batches."""
    floor = FLOORS[resource]
    spread = _scatter(points)
    return max(floor, SIGMAS * spread)


def _scatter(points: list[tuple[int, int, int]]) -> float:
    """Return the usual distance of a batch's figure from those beside it.

    A trend is no scatter, and neither is what comes in parts of unequal size and never goes.
    """
    values = [value for _, _, value in points]
    steps = [after - before for before, after in itertools.pairwise(values)]
    bends = [abs(after - before) / 2 for before, after in itertools.pairwise(steps)]
    falls = [-step for step in steps if step < 0]
    if len(bends) < FEW_POINTS or not falls:
        return 0.0
    often = min(2 * len(falls) / len(steps), 1.0)
    return min(MAD * statistics.median(bends), statistics.median(falls) * often)


def _spread_out(points: list[tuple[int, int, int]], noise: float) -> bool:
    """Tell growth in many places from a few jumps, as of a buffer that met a larger image."""
    values = [value for _, _, value in points]
    windows = min(WINDOWS, len(values) // 2)
    if windows < FEWEST_WINDOWS:
        return False
    cuts = [round(n * len(values) / windows) for n in range(windows + 1)]
    levels = [statistics.median(values[low:high]) for low, high in itertools.pairwise(cuts)]
    least = max((levels[-1] - levels[0]) / (4 * windows), noise / (2 * windows))
    rises = sum(after - before > least for before, after in itertools.pairwise(levels))
    return rises >= SPREAD * (windows - 1)


def _short(
    name: str, resource: str, marks: list[Mark], points: list[tuple[int, int, int]]
) -> _Life:
    """Judge a process that saw one epoch by the later half of its life."""
    read = READ[resource]
    values = [read(mark) or 0 for mark in marks]
    first, last = marks[0], marks[-1]
    grew = values[-1] - values[0]
    noise = max(_noise(resource, points), SHORT_FLOORS.get(resource, 0))
    line = [(samples, value) for _, samples, value in points]
    if len(line) < FEW_POINTS:
        line = [(mark.samples, value) for mark, value in zip(marks, values, strict=True)]
    shown = tuple(value for _, value in line)
    samples = max(last.samples - first.samples, 1)
    batches = max(last.batches - first.batches, 1)
    state, sure = _later(line, grew, noise)
    if state == FLAT or len(marks) < 2:  # noqa: PLR2004
        state = UNKNOWN if len(marks) < 2 else state  # noqa: PLR2004
        return _Life(name, state, values[0], values[-1], grew, noise=noise, within=True,
                     series=shown)  # fmt: skip
    return _Life(
        name, state, values[0], values[-1], grew, grew / samples,
        grew / batches, noise, within=True, sure=sure, series=shown,
    )  # fmt: skip


def _later(line: list[tuple[int, int]], grew: int, noise: float) -> tuple[str, bool]:
    """Compare the halves of a life: (state, whether that is more than a guess)."""
    if grew <= noise:
        return FLAT, False
    if len(line) < FEW_POINTS // 2:
        return GROWING, False
    middle = line[0][0] + (line[-1][0] - line[0][0]) * LATE_LIFE
    early = [one for one in line if one[0] <= middle]
    late = [one for one in line if one[0] >= middle]
    before, after = slope(early), slope(late)
    added = after * (line[-1][0] - middle)
    if added <= noise / 2 or added < grew / 16:
        return FLAT, False
    if after < LEVELS_OFF * before:
        return SATURATING, False
    return GROWING, len(line) >= FEW_POINTS


def slope(line: Iterable[tuple[int, int]]) -> float:
    """Return the median of the slopes of all pairs (Theil and Sen): jumps do not bend it."""
    known = sorted(line)
    if len(known) > MOST_PAIRS:
        step = len(known) / MOST_PAIRS
        known = [known[round(n * step)] for n in range(MOST_PAIRS - 1)] + [known[-1]]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(known, 2)
              if b[0] > a[0]]  # fmt: skip
    return statistics.median(slopes) if slopes else 0.0
