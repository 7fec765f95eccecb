"""What each process of a split held, and the device, as plots over what was made meanwhile."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dlcheck.growth import growths
from dlcheck.observation import Mark, Process, Split
from dlcheck.observation.device import Device
from dlcheck.reporters import counted
from dlcheck.reporters.plots import Line, Plot, amount

MOST_PROCESSES = 6
# Counters that are worth a plot only where they moved.
SINGULAR = {"handles": "handle", "threads": "thread", "children": "child"}
# What the verdicts call that which a plot shows.
RESOURCES = {
    "live heap": "heap", "private memory": "resident", "Python's blocks": "objects",
    "shared memory": "shm",
}  # fmt: skip


@dataclass(frozen=True)
class Held:
    """The plots of one process, and the counts of it that never moved, in words."""

    title: str
    plots: tuple[Plot, ...]
    still: str = ""


@dataclass(frozen=True)
class _Life:
    """A process, or the workers of one number, one after the other."""

    title: str
    processes: tuple[Process, ...]


def held(split: Split) -> tuple[list[Held], int]:
    """Return the plots by process, main first, and how many processes were left out."""
    states = {(one.role, one.resource): one.state for one in growths(split) if one.grew}
    shown = [one for life in _lives(split) if (one := _held(life, states)).plots]
    shown[1:] = sorted(shown[1:], key=_growth, reverse=True)
    return shown[:MOST_PROCESSES], max(len(shown) - MOST_PROCESSES, 0)


def _lives(split: Split) -> list[_Life]:
    main = tuple(p for p in split.processes.values() if p.role == "main")
    lives = [_Life("main process", main)] if main else []
    numbers = sorted({p.number for p in split.processes.values() if p.number is not None})
    for number in numbers:
        own = [p for p in split.processes.values() if p.number == number and p.role != "main"]
        own.sort(key=lambda p: p.born)
        again = ", started again each epoch" if len(own) > 1 else ""
        lives.append(_Life(f"worker {number}{again}", tuple(own)))
    return lives


def _growth(one: Held) -> float:
    points = one.plots[0].lines[0].points
    return points[-1][1] - points[0][1]


def _held(life: _Life, states: Mapping[tuple[str, str], str]) -> Held:
    starts = _starts(life.processes)
    plots = [
        Plot("live heap", _lines(life, starts, "heap"), bounds=_bounds(life, starts)),
        Plot("private memory", _lines(life, starts, "anonymous"), bounds=_bounds(life, starts)),
        Plot("Python's blocks", _lines(life, starts, "blocks"), "", bounds=_bounds(life, starts)),
        Plot("shared memory", _lines(life, starts, "shm"), bounds=_bounds(life, starts)),
    ]
    still = []
    for name, one in SINGULAR.items():
        lines = _lines(life, starts, name)
        values = {y for line in lines for _, y in line.points}
        if len(values) > 1:
            plots.append(Plot(name, lines, "", bounds=_bounds(life, starts)))
        elif any(values):
            still.append(counted.count(int(min(values)), one))
    role = life.processes[0].role
    drawn = [
        dataclasses.replace(
            plot, state=states.get((role, RESOURCES.get(plot.title, plot.title)), "")
        )
        for plot in plots
        if plot.lines and _worth(plot)
    ]
    return Held(life.title, tuple(drawn), ", ".join(still))


def _worth(plot: Plot) -> bool:
    """Leave out shared memory that was never used."""
    return any(y for line in plot.lines for _, y in line.points)


def _starts(processes: Sequence[Process]) -> list[int]:
    """Say how many samples those before each process had made."""
    starts, total = [], 0
    for process in processes:
        starts.append(total)
        total += max(
            [*(mark.samples for mark in process.marks), *(p.samples for p in process.points)],
            default=0,
        )
    return starts


def _lines(life: _Life, starts: Sequence[int], name: str) -> list[Line]:
    """Draw a counter after each batch where it was read then, and at the marks."""
    every: list[tuple[float, float]] = []
    exact: list[tuple[float, float]] = []
    for process, start in zip(life.processes, starts, strict=True):
        if name in ("heap", "blocks"):
            every += [
                (start + point.samples, value)
                for point in process.points
                if (value := getattr(point, name)) is not None
            ]
        exact += _marked(process.marks, start, lambda mark: getattr(mark, name))
    lines = [Line("after each batch", every)] if len(every) > 1 else []
    return [*lines, Line("after a collection", exact, dots=True)] if exact else lines


def _marked(
    marks: Sequence[Mark], start: int, read: Callable[[Mark], int | None]
) -> list[tuple[float, float]]:
    return [(start + m.samples, value) for m in marks if (value := read(m)) is not None]


def _bounds(life: _Life, starts: Sequence[int]) -> list[float]:
    """Find where epochs ended, but the last."""
    ends = [
        start + mark.samples
        for process, start in zip(life.processes, starts, strict=True)
        for mark in process.marks
        if mark.at == "end"
    ]
    return [float(at) for at in sorted(set(ends))[:-1]]


def on_device(device: Device | None) -> Held | None:
    """Return the plot of an accelerator's memory after each batch."""
    if device is None or not device.readings:
        return None
    order = list(enumerate(device.readings))
    lines = [
        Line("peak within a batch", [(n, float(r.peak)) for n, r in order]),
        Line("allocated after it", [(n, float(r.allocated)) for n, r in order]),
        Line("reserved", [(n, float(r.reserved)) for n, r in order]),
    ]
    bounds = [float(n) for n, r in order if n and r.epoch != device.readings[n - 1].epoch]
    title = " ".join(filter(None, [device.name or device.asked or "the device", device.model]))
    plot = Plot("device memory", lines, across="batches", bounds=bounds)
    total = f"{amount(device.total)} in all" if device.total else ""
    return Held(title, (plot,), total)
