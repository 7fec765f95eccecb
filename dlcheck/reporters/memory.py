"""The table of what each process held: start, end, per epoch, per sample, verdict, its course."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from dlcheck.growth import FLAT, READ_POINT, UNKNOWN, Growth, growths
from dlcheck.observation import Process, Split
from dlcheck.reporters.counted import size

HEAD = ("process", "what", "start", "end", "+/epoch", "+/sample", "verdict", "course")
BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
PLAIN_BARS = "_.,:-=+#"
LONG, SHORT = 12, 6
NAMES = {
    "heap": "heap",
    "objects": "objects",
    "resident": "resident",
    "copied": "private",
    "shm": "shm",
    "mapped": "mapped",
    "handles": "handles",
    "threads": "threads",
    "children": "children",
}
COUNTED = {"objects", "handles", "threads", "children"}
# Shown although nothing happens: that they were looked at is the news.
ALWAYS = {"heap", "objects", "handles", "threads"}
FEW = 100
MINUS = "-"


def title(split: Split) -> str:
    """Say over what the table was taken: `memory and resources, 3 epochs of 320 samples`."""
    length = f" of {split.samples:,}" if split.samples else ""
    of = f" (the dataset has {split.of:,})" if split.of and split.samples < split.of else ""
    epochs = f"{split.epochs} epoch{'' if split.epochs == 1 else 's'}"
    unit = f"{length} sample{'' if split.samples == 1 else 's'}" if length else ""
    return f"memory and resources, {epochs}{unit}{of}"


def tables(split: Split, *, ascii_only: bool = False) -> list[list[tuple[str, ...]]]:
    """Return the table with a long course, with a short one and with none, for narrower pages."""
    shown = [one for one in growths(split) if worth_a_row(one)]
    return [
        [row(split, one, ascii_only=ascii_only, bars=bars) for one in shown]
        for bars in (LONG, SHORT, 0)
        if shown
    ]


def worth_a_row(growth: Growth) -> bool:
    """Tell what grew, or is always asked for, from figures that say nothing here."""
    return growth.grew or growth.resource in ALWAYS or (
        growth.resource == "shm" and bool(growth.end)
    )  # fmt: skip


def row(split: Split, growth: Growth, *, ascii_only: bool, bars: int) -> tuple[str, ...]:
    """Render one growth with a course of so many `bars`; what is below the noise is no figure."""
    show = _count if growth.resource in COUNTED else size
    grew = growth.state not in (FLAT, UNKNOWN)
    copied = growth.resource == "copied"
    start = 0 if copied else growth.start or 0
    end = (growth.end or 0) - (growth.start or 0) if copied else growth.end or 0
    cells = (
        who(growth),
        NAMES[growth.resource],
        show(start),
        show(end),
        _signed(growth.per_epoch, show) if grew else MINUS,
        _signed(growth.per_sample, _rate if growth.resource in COUNTED else show)
        if grew and growth.per_sample
        else MINUS,
        growth.state + ("?" if grew and not growth.sure else ""),
    )
    if not bars:
        return cells
    values = course(split.processes.get(growth.process), growth, bars)
    return (*cells, sparkline(values, ascii_only=ascii_only))


def who(growth: Growth) -> str:
    """Name the processes of a row: `main`, `worker x2`."""
    return growth.role if growth.of <= 1 else f"{growth.role} x{growth.of}"


def course(process: Process | None, growth: Growth, bars: int) -> list[float]:
    """Return values on the way: medians of batches where there are enough of them, else marks."""
    read = READ_POINT.get(growth.resource)
    points = process.points if process is not None and read is not None else ()
    known = [value for point in points if read and (value := read(point)) is not None]
    values = known if len(known) >= bars else list(growth.series)
    size = max(len(values) / bars, 1)
    parts = [values[round(n * size) : round((n + 1) * size)] for n in range(bars)]
    return [float(statistics.median(part)) for part in parts if part]


def sparkline(values: list[float], *, ascii_only: bool) -> str:
    """Draw values as bars between the lowest and the highest; a scatter of nothing stays low."""
    bars = PLAIN_BARS if ascii_only else BARS
    low, high = min(values, default=0.0), max(values, default=0.0)
    span = max(high - low, abs(high) / 1000, 1.0)
    return "".join(bars[round((value - low) / span * (len(bars) - 1))] for value in values)


def _signed(value: float, show: Callable[[float], str]) -> str:
    text = show(abs(value))
    return f"{'-' if value < 0 else '+'}{text}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _rate(value: float) -> str:
    return f"{value:.2g}" if value < FEW else f"{value:,.0f}"
