"""DLC305: samples that the pipeline made blank, or equal to one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dlcheck.findings import NOTE, WARNING, Finding, NotApplicable, Severity, Where, rule
from dlcheck.observation import Contents, Field, Journey, Observation, SampleId, Split, Step
from dlcheck.rules import ways
from dlcheck.rules.kinds import GUESS, INPUTS, is_container, is_first, kind
from dlcheck.rules.words import base, joined, named, some

FEWEST = 8
TWO = 2
MOST_SHOWN = 8
MATRIX = 2


@rule(
    "DLC305",
    severity=WARNING,
    needs="samples",
    title="Samples that the pipeline made blank, or equal to one another",
    why="A failed read that is replaced, a cache with the wrong key or an index that is not used "
    "feeds the same picture under other labels; nothing fails.",
    fix="Let a failed read raise, or leave the file out when the index is built; key caches by "
    "dataset and index, on the instance; use the index that __getitem__ is given.",
    yields_to=("non-finite",),
)
def constant_sample(obs: Observation) -> Iterator[Finding]:
    """Fire where distinct indexes give equal or blank inputs, made so by the pipeline.

    That shows in the samples' ways: drawn alone they differ, or their files do. Files that really
    are blank or equal are a note. Masks, labels, small arrays and repeats that the sampler asks
    for are left alone.
    """
    judged = False
    for name, split in obs.splits.items():
        for field, seen in split.fields.items():
            if is_container(seen) or not _is_input(split, field):
                continue
            judged = True
            yield from _blank(name, split, field, seen)
            contents = split.contents.get(field)
            if contents is not None:
                yield from _equal(name, split, field, contents)
    if not judged:
        reason = "no field is known to be an input"
        raise NotApplicable(reason)


def _is_input(split: Split, field: str) -> bool:
    found = kind(split, field)
    if found.confidence >= GUESS:
        return found.name in INPUTS and found.name != "tokens"
    return is_first(split, field)


@dataclass(frozen=True)
class Cause:
    """Why samples are equal or blank: what made them so, where, and what is known of it."""

    severity: Severity
    text: str
    journey: Journey
    step: Step | None
    facts: dict[str, Any]


def _blank(name: str, split: Split, field: str, seen: Field) -> Iterator[Finding]:
    bad = seen.constant
    if not bad.n:
        return
    drawn = [j for s in bad.at if (j := ways.way_of(split, s)) and field in j.fields]
    causes = [cause for j in drawn if (cause := _blank_cause(split, field, j)) is not None]
    cause = max(causes, key=lambda one: one.severity, default=None)
    if cause is None:
        return
    count = some(ways.distinct(split, bad), bad.at) if bad.n < seen.n else "every sample"
    message = f"{named(field)} is one number throughout in {count}"
    facts = {"samples": list(bad.at), "blank": bad.n, "read": seen.n}
    yield _finding(name, field, f"{message}: {cause.text}", cause, facts)


def _blank_cause(split: Split, field: str, journey: Journey) -> Cause | None:
    final = journey.fields[field]
    if final.low is None or final.low != final.high:
        return None
    steps = ways.chain(journey, field)
    blanked = next((step for step in steps if _blanks(step)), None)
    if blanked is not None:
        if not _keeps_size(blanked):
            return None
        text = f"made so by {ways.stage(blanked)}{ways.at(blanked)}"
        return Cause(WARNING, text, journey, blanked, ways.step_facts(blanked))
    first = steps[0] if steps else None
    if first is not None and (replaced := _replaced(split, field, journey, first)):
        return replaced
    if journey.opened and _from_file(journey, field):
        file = journey.opened[-1]
        text = f"{base(file.path)} holds nothing else"
        return Cause(NOTE, text, journey, first, {"files": [file.path]})
    return None


def _blanks(step: Step) -> bool:
    before, after = step.before, step.after
    held = before is not None and before.low is not None and before.low != before.high
    return held and after.low is not None and after.low == after.high


def _replaced(split: Split, field: str, journey: Journey, first: Step) -> Cause | None:
    """Tell a blank array that was made where other samples read theirs from a file."""
    others = [j for j in ways.ways(split) if j.sample != journey.sample and j.opened]
    if not others or _from_file(journey, field):
        return None
    if any(ways.same_place(first, s) for j in others for s in ways.chain(j, field)):
        return None
    paths = [base(one.path) for one in journey.opened]
    text = f"made in place of {joined(paths) or 'what its file holds'}{ways.at(first)}"
    return Cause(WARNING, text, journey, first, {"opened": paths})


def _keeps_size(step: Step) -> bool:
    """Tell steps that leave the picture whole: a crop may rightly cut a blank part out of it."""
    before = step.before
    if before is None or before.shape is None or step.after.shape is None:
        return False
    return sorted(before.shape) == sorted(step.after.shape)


def _from_file(journey: Journey, field: str) -> bool:
    """Tell whether the way of a field begins at a line that read a file."""
    steps = ways.chain(journey, field)
    lines = {(one.file, one.line) for one in journey.opened if one.shape is not None}
    return not steps or any((s.file, s.line) in lines for s in steps)


def _equal(name: str, split: Split, field: str, contents: Contents) -> Iterator[Finding]:
    loader = split.loader
    if loader is None or loader.kind != "map" or _blank_alike(split, field):
        return
    groups = [ids for ids in contents.seen.values() if len(ids) > 1]
    if not groups:
        return
    several = {sample for ids in groups for sample in ids}
    causes = [cause for ids in groups if (cause := _equal_cause(split, field, contents, ids))]
    cause = max(causes, key=lambda one: one.severity, default=None)
    if cause is None:
        return
    distinct = len(contents.seen)
    ids = next(ids for ids in groups if cause.journey.sample in ids)
    facts = {
        "equal": list(ids), "groups": len(groups), "distinct": distinct,
        "samples": len(several) + distinct - len(groups), "labels": _labels(split, field, ids),
    }  # fmt: skip
    message = (
        f"{named(field)} of samples {joined(ids[:MOST_SHOWN])} is equal ({distinct:,} different "
        f"ones in {facts['samples']:,} samples): {cause.text}"
    )
    yield _finding(name, field, message, cause, facts)


def _blank_alike(split: Split, field: str) -> bool:
    """Tell that what is equal are the blank ones."""
    seen = split.fields[field]
    return seen.constant.n > 1


def _equal_cause(
    split: Split, field: str, contents: Contents, ids: Sequence[SampleId]
) -> Cause | None:
    drawn = [way for s in ids if (way := ways.way_of(split, s)) and field in way.contents]
    if len(drawn) < TWO:
        return None
    first, last = drawn[0], drawn[-1]
    if first.contents[field] != last.contents[field]:
        return _shared(field, first, last)
    alike = first.digests.get(field) == last.digests.get(field)
    files = [[one.path for one in way.opened] for way in (first, last)]
    if alike and files[0] and files[1] and files[0] != files[1]:
        return _files_differ(field, first, last)
    if not alike or len(contents.seen) > 1 or len(ids) < FEWEST:
        return None
    step = next(iter(ways.chain(first, field)), None)
    if not files[0] and step is not None and not _index_read(split, field, first, last):
        return None
    text = f"every index reads {base(files[0][-1])}" if files[0] else "every index gives this one"
    return Cause(WARNING, text, first, step, {"files": files[0]})


def _index_read(split: Split, field: str, first: Journey, last: Journey) -> bool:
    """Tell that other fields of the two samples differ, so that the index matters somewhere."""
    others = set(first.fields) & set(last.fields) - {field}
    return any(first.fields[name] != last.fields[name] for name in others) or any(
        len(seen.values) > 1 for other, seen in split.fields.items() if other != field
    )


def _shared(field: str, first: Journey, last: Journey) -> Cause | None:
    """Judge samples that were equal in the drive and differ when each is drawn alone."""
    if not (first.steady and last.steady):
        return None
    step = _kept(field, last) or _kept(field, first)
    text = (
        f"drawn alone, samples {first.sample} and {last.sample} differ, so one was given what "
        "was kept for the other"
    )
    text += f"; kept{ways.at(step)} (`{step.text.strip()}`)" if step else ""
    return Cause(WARNING, text, last, step, ways.step_facts(step) if step else {})


def _kept(field: str, journey: Journey) -> Step | None:
    """Find where a sample, drawn a second time, was taken from instead of being made anew."""
    made = ways.chain(journey, field)
    again = [step for step in journey.again if field in step.fields]
    fresh = [step for step in again if not any(ways.same_place(step, one) for one in made)]
    return next(iter(fresh), None)


def _files_differ(field: str, first: Journey, last: Journey) -> Cause | None:
    """Judge equal samples that come from other files."""
    paths = [base(one.path) for one in (first.opened[-1], last.opened[-1])]
    facts = {"files": [one.path for way in (first, last) for one in way.opened][:MOST_SHOWN]}
    if first.opened[-1].path == last.opened[-1].path:
        longer = max(first, last, key=lambda way: len(way.opened))
        step = next(iter(ways.chain(longer, field)), None)
        text = (
            f"sample {longer.sample} opened {base(longer.opened[0].path)} and came out as "
            f"{paths[0]}"
        )
        return Cause(WARNING, text, longer, step, facts)
    mine, other = ways.chain(first, field), ways.chain(last, field)
    for step, twin in zip(mine, other, strict=False):
        if _numbers(step) != _numbers(twin):
            continue
        if step is mine[0]:
            text = f"{joined(paths)} hold the same"
            return Cause(NOTE, text, first, step, facts)
        text = f"{joined(paths)} differ, and are equal after {ways.stage(step)}{ways.at(step)}"
        return Cause(WARNING, text, last, step, facts | ways.step_facts(step))
    return None


def _numbers(step: Step) -> tuple[Any, ...]:
    after = step.after
    return after.shape, after.low, after.high, after.mean


def _labels(split: Split, field: str, ids: Sequence[SampleId]) -> int:
    """Count the different values of integer fields among equal samples, as far as is known."""
    found = 0
    for other, seen in split.fields.items():
        if other != field and kind(split, other).sure("label"):
            holding = [v for v, t in seen.values.items() if set(t.at) & set(ids)]
            found = max(found, len(holding))
    return found


def _finding(name: str, field: str, message: str, cause: Cause, facts: dict[str, Any]) -> Finding:
    step, journey = cause.step, cause.journey
    file, line = (step.file, step.line) if step and step.file else ways.returned(journey)
    opened = journey.opened[-1].path if journey.opened else None
    where = Where(
        name or None, field, ways.stage(step) if step else None, journey.sample, file, line,
        path=opened,
    )  # fmt: skip
    return Finding(message, where, facts | cause.facts, cause.severity)
