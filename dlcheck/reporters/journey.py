"""The rows that describe one sample's way: a row a stage, and where samples part."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlcheck.observation import Journey, Split, State, Step, shape_text

HEAD = ("stage", "at", "shape", "dtype", "layout", "range", "ms")
AT = HEAD.index("at")
# What a narrow page leaves out, one after the other.
LEAVE_OUT = ("ms", "range", "dtype", "at")
MOST_ROWS = 12
MOST_FIELDS = 3
WIDEST_STAGE = 28
NARROW_STAGE = 18
COLLATED = "batch"
BROADEST_NUMBER = 1e15


@dataclass(frozen=True)
class Way:
    """The way of one field of one sample. `parts` tells whether a row bears the mark `*`."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    parts: bool = False


def ways(split: Split) -> list[Way]:
    """Describe one traced sample, a table a field; the largest fields first, three at most."""
    drawn = [j for key, j in split.journeys.items() if key != COLLATED and j.steps]
    finished = [j for j in drawn if j.failure is None and j.reproduced is not False]
    if not drawn:
        return []
    shown = finished[0] if finished else drawn[0]
    if not finished:
        return [_failed_way(shown)]
    arrays = {f: s for f, s in shown.fields.items() if s.shape and _chain(shown, f)}
    largest = sorted(arrays, key=lambda field: -math.prod(arrays[field].shape or ()))
    return [_way(shown, field, finished) for field in largest[:MOST_FIELDS]]


def tables(way: Way) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Yield (title, head, rows), each narrower than the one before."""
    yield way.title, HEAD, list(way.rows)
    file = _commonest_file(way)
    title = f"{way.title} ({file})" if file else way.title
    rows = [_narrow(row, file) for row in way.rows]
    for left_out in range(len(LEAVE_OUT) + 1):
        kept = [n for n, name in enumerate(HEAD) if name not in LEAVE_OUT[:left_out]]
        head = tuple(HEAD[n] for n in kept)
        shown = title if "at" in head else way.title
        yield shown, head, [tuple(row[n] for n in kept) for row in rows]


def _commonest_file(way: Way) -> str:
    files = Counter(row[AT].rpartition(":")[0] for row in way.rows if row[AT])
    return files.most_common(1)[0][0] if files else ""


def _narrow(row: tuple[str, ...], file: str) -> tuple[str, ...]:
    """Cut the stage short, and leave out the file that the title names."""
    stage, at, *rest = row
    return (_short(stage, NARROW_STAGE), at.removeprefix(file) if file else at, *rest)


def _chain(journey: Journey, field: str) -> list[Step]:
    return [step for step in journey.steps if field in step.fields]


def _way(journey: Journey, field: str, others: Sequence[Journey]) -> Way:
    steps = _chain(journey, field)
    part = _parting(steps, field, others)
    title = f"the way of sample {journey.sample}" + (f", {field}" if field else "")
    return Way(title, tuple(_rows(steps, part)), part is not None)


def _failed_way(journey: Journey) -> Way:
    """Describe the way of a sample that ended in an exception, to the stage that raised it."""
    rows = _rows(list(journey.steps), None)
    given = cells(journey.failed_state) if journey.failed_state else ("", "", "", "")
    exception = journey.failure.exception if journey.failure else "an exception"
    place = journey.failure.place() if journey.failure else ""
    stage = _short(f"{journey.failed_stage or 'the code'} raised")
    rows.append((stage, base(place), *given[:3], exception, ""))
    return Way(f"the way of sample {journey.sample}, which could not be made", tuple(rows))


def _rows(steps: list[Step], part: int | None) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    if steps and steps[0].before is not None:
        rows.append(("start", "", *cells(steps[0].before), ""))
    kept = _kept(steps, part)
    last = -1
    for place in kept:
        if place - last > 1:
            rows.append((f"... {place - last - 1} more", *[""] * (len(HEAD) - 1)))
        rows.append(_row(steps[place], marked=place == part))
        last = place
    return rows


def _kept(steps: Sequence[Step], part: int | None) -> list[int]:
    """Choose the steps to show: of a long way both ends and what changed more than the range."""
    every = list(range(len(steps)))
    if len(every) <= MOST_ROWS:
        return every
    telling = [n for n in every if _changes(steps[n])]
    wanted = sorted({0, every[-1], *telling})
    half = MOST_ROWS // 2
    if len(wanted) > MOST_ROWS:
        wanted = [*wanted[:half], *wanted[-half:]]
    return sorted({*wanted, *([] if part is None else [part])})


def _changes(step: Step) -> bool:
    before, after = step.before, step.after
    if before is None:
        return True
    return (before.shape, before.dtype, before.layout) != (after.shape, after.dtype, after.layout)


def _row(step: Step, *, marked: bool) -> tuple[str, ...]:
    stage = ("* " if marked else "") + _short(step.stage or step.text.strip())
    time = f"{step.seconds * 1000:.2g}" if step.seconds else ""
    return (stage, f"{base(step.file)}:{step.line}", *cells(step.after), time)


def cells(state: State) -> tuple[str, str, str, str]:
    """Render shape, dtype, layout and range."""
    shape = "" if state.shape is None else shape_text(state.shape)
    return shape, state.dtype or state.type, state.layout, _range(state)


def _range(state: State) -> str:
    if state.low is None or state.high is None:
        return "NaN or inf" if state.nonfinite else ""
    words = span(state.low, state.high)
    return f"{words}, NaN or inf" if state.nonfinite else words


def span(low: float, high: float) -> str:
    """Render a range in three digits; one number where both ends read alike."""
    first, last = _number(low), _number(high)
    return first if first == last else f"{first} to {last}"


def _number(value: float) -> str:
    whole = abs(value) < BROADEST_NUMBER and value == int(value)
    return f"{value:.0f}" if whole else f"{value:.3g}"


def _short(text: str, widest: int = WIDEST_STAGE) -> str:
    return text if len(text) <= widest else text[: widest - 3] + "..."


def base(place: str) -> str:
    """Return the last part of a path, of whatever system."""
    return place.replace("\\", "/").rpartition("/")[2]


def _parting(steps: list[Step], field: str, others: Sequence[Journey]) -> int | None:
    """Find the step from which on samples differ in size to the end; None where they agree.

    Where they differ from the start, it is the last one that changed a size.
    """
    differing = [_differ(step, field, others) for step in steps]
    if not differing or not differing[-1]:
        return None
    first = len(differing)
    while first and differing[first - 1]:
        first -= 1
    if first:
        return first
    resizing = [n for n, step in enumerate(steps) if _resizes(step)]
    return resizing[-1] if resizing else 0


def _differ(step: Step, field: str, others: Sequence[Journey]) -> bool:
    """Tell whether the samples have several sizes after the same line and stage."""
    key = (step.file, step.line, step.stage, step.position)
    sizes = {
        tuple(sorted(one.after.shape or ()))
        for journey in others
        for one in _chain(journey, field)
        if (one.file, one.line, one.stage, one.position) == key
    }
    return len(sizes) > 1


def _resizes(step: Step) -> bool:
    before = step.before.shape if step.before else None
    return before is not None and sorted(before) != sorted(step.after.shape or ())
