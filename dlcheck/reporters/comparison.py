"""Two runs side by side: new and cured findings, and what changed in batches, memory and speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from dlcheck.findings import Finding, Report
from dlcheck.growth import BOTH, FLOORS, MIB, Growth, growths
from dlcheck.observation import Split
from dlcheck.reporters import batch, counted, memory

# Two draws of one pipeline differ by this share of a range's span, and time by this share.
SAME_RANGE = 0.1
SAME_SPEED = 0.1
SAME_MEMORY = 0.05

Key = tuple[str, str | None, str | None, str | None, str, int]


@dataclass(frozen=True)
class Change:
    """One row: what it is of, and how it read in both runs."""

    what: str
    before: str
    after: str


@dataclass(frozen=True)
class Comparison:
    """`unjudged` are findings that are gone because their rule did not run again, with the why."""

    before: Report
    after: Report
    new: tuple[Finding, ...]
    cured: tuple[Finding, ...]
    unjudged: tuple[tuple[Finding, str], ...]
    unchanged: tuple[Finding, ...]
    changes: Mapping[str, tuple[Change, ...]]


def compare(before: Report, after: Report) -> Comparison:
    """Match findings by rule and place, whatever line they have moved to."""
    old, fresh = _keyed(before.findings), _keyed(after.findings)
    reasons = {s.rule: f"{s.state}: {s.reason}" for s in after.rules if s.state != "ran"}
    gone = [finding for key, finding in old.items() if key not in fresh]
    return Comparison(
        before=before,
        after=after,
        new=tuple(finding for key, finding in fresh.items() if key not in old),
        cured=tuple(f for f in gone if f.rule not in reasons),
        unjudged=tuple((f, reasons[f.rule]) for f in gone if f.rule in reasons),
        unchanged=tuple(finding for key, finding in fresh.items() if key in old),
        changes={name: tuple(_rows(before, after, of)) for name, of in _SUBJECTS.items()},
    )


def _keyed(findings: Iterable[Finding]) -> dict[Key, Finding]:
    """Key by what outlives an edit: no line, no sample, no folder that a checkout lies in."""
    keyed: dict[Key, Finding] = {}
    met: Counter[tuple[str | None, ...]] = Counter()
    for finding in findings:
        where = finding.where
        file = PurePath(where.file or "").name
        place = (finding.rule, where.split, where.field, where.attribute, file)
        met[place] += 1
        key = (*place, met[place])
        keyed[key] = finding
    return keyed


Rows = Iterator[tuple[str, str, str]]


def _rows(before: Report, after: Report, of: Callable[[Report, Report], Rows]) -> Iterator[Change]:
    yield from (Change(*row) for row in of(before, after))


def _run(before: Report, after: Report) -> Rows:
    """Compare what ran: two runs of different things are not to be compared in silence."""
    yield from _different("command", before.command, after.command)
    yield from _different("target", before.target, after.target)
    yield from _different("verdict", before.verdict, after.verdict)
    yield from _different("accepted by a baseline", _accepted(before), _accepted(after))
    old, new = before.observation.versions, after.observation.versions
    for name in sorted({*old, *new}):
        yield from _different(name, old.get(name, ""), new.get(name, ""))


def _accepted(report: Report) -> str:
    """Count what a baseline took out: it is not cured."""
    known = report.observation.settings.get("baseline")
    return str(known.get("known", 0)) if isinstance(known, Mapping) else "0"


def _fields(before: Report, after: Report) -> Rows:
    for name, old, new in _splits(before, after):
        first, second = _batch(old), _batch(new)
        for field in dict.fromkeys([*first, *second]):
            label = f"{name}: {field}" if name else field
            a, b = first.get(field), second.get(field)
            if a is None or b is None:
                yield label, _words(a), _words(b)
                continue
            for column in ("shape", "dtype"):
                yield from _different(f"{label} {column}", a[column], b[column])
            if _moved(old, new, field):
                yield f"{label} range", a["range"], b["range"]


def _batch(split: Split) -> dict[str, dict[str, str]]:
    """Return the rows that describe the batch, by field and column."""
    rows = (dict(zip(batch.HEAD, row, strict=True)) for row in batch.rows(split))
    return {row["field"]: row for row in rows}


def _words(row: Mapping[str, str] | None) -> str:
    return ", ".join(cell for name, cell in (row or {}).items() if cell and name != "field")


def _moved(old: Split, new: Split, field: str) -> bool:
    """Tell whether a range moved by more than two draws of one pipeline differ."""
    name = "" if field == "(whole)" else field
    a = old.fields.get(name) or old.batch_fields.get(name)
    b = new.fields.get(name) or new.batch_fields.get(name)
    if a is None or b is None or a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    span = max(a.high - a.low, b.high - b.low)
    return max(abs(a.low - b.low), abs(a.high - b.high)) > SAME_RANGE * span


def _memory(before: Report, after: Report) -> Rows:
    for name, old, new in _splits(before, after):
        start = f"{name}: " if name else ""
        first = {(one.role, one.resource): one for one in growths(old)}
        for one in growths(new):
            was = first.get((one.role, one.resource))
            if was is not None and _apart(was, one):
                label = f"{start}{one.role} {memory.NAMES[one.resource]}"
                yield label, _held(old, was), _held(new, one)
        for role in BOTH:
            a, b = _peak(old, role), _peak(new, role)
            if a and b and abs(a - b) > SAME_MEMORY * max(a, b):
                yield f"{start}{role} peak", f"{a / MIB:,.1f} MiB", f"{b / MIB:,.1f} MiB"


def _device(before: Report, after: Report) -> Rows:
    for name, old, new in _splits(before, after):
        start = f"{name}: " if name else ""
        first, second = _on_device(old), _on_device(new)
        for figure in [key for key in first if key in second]:
            a, b = first[figure], second[figure]
            if abs(a - b) > SAME_MEMORY * max(a, b):
                yield f"{start}{figure}", counted.size(a), counted.size(b)


def _on_device(split: Split) -> dict[str, int]:
    """Return what was measured on a device, and what is foreseen without one, in bytes."""
    figures = {}
    readings = split.device.readings if split.device else ()
    if readings:
        figures["peak"] = max(reading.peak for reading in readings)
        figures["allocated"] = readings[-1].allocated
        figures["reserved"] = readings[-1].reserved
    if split.budget and split.budget.peak:
        figures["foreseen peak of a step"] = split.budget.peak
    return figures


def _apart(old: Growth, new: Growth) -> bool:
    """Tell whether a verdict, or what is held, differs by more than two equal runs would."""
    if old.grew != new.grew:
        return True
    noise = max(old.noise, new.noise, FLOORS[new.resource])
    if old.grew and abs(old.per_epoch - new.per_epoch) > max(noise, SAME_MEMORY * new.per_epoch):
        return True
    a, b = old.end or 0, new.end or 0
    return abs(a - b) > max(noise, SAME_MEMORY * max(a, b))


def _held(split: Split, one: Growth) -> str:
    cells = dict(zip(memory.HEAD, memory.row(split, one, ascii_only=True, bars=0), strict=False))
    each = f", {cells['+/epoch']} an epoch" if one.grew else ""
    return f"{cells['end']}{each}, {cells['verdict']}"


def _peak(split: Split, role: str) -> int:
    processes = [
        one for one in split.processes.values() if (one.role == "main") == (role == "main")
    ]
    return max((mark.peak or 0 for one in processes for mark in one.marks), default=0)


def _speed(before: Report, after: Report) -> Rows:
    for name, old, new in _splits(before, after):
        a, b = samples_a_second(old), samples_a_second(new)
        if a and b and abs(a - b) > SAME_SPEED * max(a, b):
            label = f"{name}: samples a second" if name else "samples a second"
            yield label, f"{a:,.1f}", f"{b:,.1f} ({(b - a) / a:+.0%})"


def samples_a_second(split: Split) -> float | None:
    """Return how fast dlcheck could draw samples; None where too little was drawn to say."""
    drawn = split.samples + split.again + split.spread
    return drawn / split.seconds if drawn and split.seconds > 0 else None


_SUBJECTS: dict[str, Callable[[Report, Report], Rows]] = {
    "run": _run,
    "batch": _fields,
    "memory": _memory,
    "device": _device,
    "speed": _speed,
}


def _splits(before: Report, after: Report) -> Iterator[tuple[str, Split, Split]]:
    old, new = before.observation.splits, after.observation.splits
    for name in dict.fromkeys([*old, *new]):
        yield name, old.get(name, Split()), new.get(name, Split())


def _different(what: str, before: str, after: str) -> Rows:
    if before != after:
        yield what, before, after
