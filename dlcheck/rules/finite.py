"""DLC303: NaN and inf in samples."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck.findings import ERROR, WARNING, Finding, Where, rule
from dlcheck.observation import Field, Journey, Observation, SampleId, Split, Step
from dlcheck.rules import ways
from dlcheck.rules.kinds import is_target, kind
from dlcheck.rules.words import base, joined, named, some

ALLOWED = frozenset({"ok", "allow", "allowed", "true"})


@rule(
    "DLC303",
    severity=ERROR,
    needs="samples",
    title="NaN or inf in samples",
    why="One such number turns the loss, then every weight, into NaN; which step meets it depends "
    "on the shuffle.",
    fix="Guard the division or logarithm (add an epsilon, clamp), or leave the sample out; if NaN "
    "marks what is unknown, declare `fields: {depth: {nan: ok}}` and mask it in the loss.",
)
def non_finite(obs: Observation) -> Iterator[Finding]:
    """Fire for every field that holds NaN or inf in any sample read.

    A warning with the share on targets, where NaN often marks what is unknown; `nan: ok` silences.
    """
    for name, split in obs.splits.items():
        bad = [field for field, seen in split.fields.items() if seen.nonfinite.n]
        yield from (_finding(name, split, field) for field in bad if not _allowed(split, field))
        for field, seen in split.batch_fields.items():
            if seen.nonfinite.n and not bad and not _allowed(split, field):
                yield _batch_finding(name, split, field, seen)


def _allowed(split: Split, field: str) -> bool:
    said = ways.declared(split, field).get("nan", ways.expected(split, field).get("nan"))
    return said is True or str(said).lower() in ALLOWED


def _finding(name: str, split: Split, field: str) -> Finding:
    seen = split.fields[field]
    bad = seen.nonfinite
    target = is_target(split, field)
    journey, step = _origin(split, field, bad.at)
    sample: SampleId | None = journey.sample if journey else next(iter(bad.at), None)
    file, line = (step.file, step.line) if step else ways.returned(journey)
    opened = journey.opened[-1] if journey and journey.opened else None
    share = bad.n / max(seen.n, 1)
    evidence = {
        "samples": list(bad.at),
        "bad": bad.n,
        "read": seen.n,
        "share": round(share, 6),
        "kind": kind(split, field).name,
        **(ways.step_facts(step) if step else {}),
        **({"input_range": _range(step)} if step else {}),
    }
    where = Where(
        name or None, field, ways.stage(step) if step else None, sample, file, line,
        path=opened.path if opened else None,
    )  # fmt: skip
    count = some(ways.distinct(split, bad), bad.at)
    message = f"{named(field)} holds NaN or inf in {count} ({share:.2%} of what was read)"
    message += _how(journey, step)
    return Finding(message, where, evidence, WARNING if target else ERROR)


def _batch_finding(name: str, split: Split, field: str, seen: Field) -> Finding:
    """Speak of a batch whose samples were finite, or of which no sample was seen."""
    way = split.journeys.get(ways.COLLATED)
    steps = ways.chain(way, field) if way else []
    step = next((one for one in steps if one.after.nonfinite), None)
    file, line = (step.file, step.line) if step else ways.returned(way)
    evidence = {
        "bad_batches": seen.nonfinite.n,
        "collate": split.loader.collate if split.loader else "",
    }
    evidence |= ways.step_facts(step) if step else {}
    where = Where(name or None, field, ways.stage(step) if step else None, file=file, line=line)
    samples = ", though its samples were finite: the collate made it" if split.fields else ""
    message = f"{named(field)} holds NaN or inf in batch {joined(seen.nonfinite.at)}{samples}"
    severity = WARNING if field in split.fields and is_target(split, field) else ERROR
    return Finding(message, where, evidence, severity)


def _origin(
    split: Split, field: str, samples: tuple[SampleId, ...]
) -> tuple[Journey | None, Step | None]:
    """Find the first step after which the numbers are no longer finite, in a bad sample's way."""
    drawn = [journey for s in samples if (journey := ways.way_of(split, s)) is not None]
    for journey in drawn:
        for step in ways.chain(journey, field):
            if step.after.nonfinite:
                made_here = step.before is None or not step.before.nonfinite
                return journey, step if made_here else None
    return (drawn[0], None) if drawn else (None, None)


def _range(step: Step) -> list[float | None]:
    return [step.before.low, step.before.high] if step.before else []


def _how(journey: Journey | None, step: Step | None) -> str:
    if journey is None:
        return ""
    if step is None:
        return f"; sample {journey.sample}, drawn again, came out without"
    before = step.before
    opened = journey.opened[-1] if journey.opened else None
    if before is None:
        where = f", read from {base(opened.path)}" if opened else ""
        return f"; so from the first line that has it{ways.at(step)}{where}"
    given = ""
    if before.low is not None:
        given = f" of {before.low:g} to {before.high:g}"
        given = (
            f" of an array that is {before.low:g} throughout"
            if before.low == before.high
            else given
        )
    return f"; made by {ways.stage(step)}{given}{ways.at(step)} (`{step.text.strip()}`)"
