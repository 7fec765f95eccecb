"""DLC205: views that run backwards, which no tensor can be made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dlcheck.findings import ERROR, Finding, Where, rule
from dlcheck.observation import Failure, Frame, Journey, Observation, Split, Step
from dlcheck.rules import ways
from dlcheck.rules.words import joined, some

MOST_TEXT = 500
NEGATIVE = re.compile(r"strides?\b.*\bnegative|negative strides?", re.IGNORECASE | re.DOTALL)


@rule(
    "DLC205",
    severity=ERROR,
    needs="samples",
    title="A flipped view has negative strides, which no tensor can have",
    why="img[:, ::-1], np.flip and np.rot90 return views that run backwards; torch.from_numpy and "
    "the collate refuse them, and only in the draws in which the flip was taken.",
    fix="Copy after the flip: np.ascontiguousarray(img), or img[:, ::-1].copy().",
)
def negative_strides(obs: Observation) -> Iterator[Finding]:
    """Fire where making a sample or a batch failed on an array that runs backwards."""
    for name, split in obs.splits.items():
        failures = [f for f in split.failures.values() if _speaks_of_strides(f)]
        if failures:
            yield _strides_finding(name, split, failures)


def _speaks_of_strides(failure: Failure) -> bool:
    return failure.phase in {"sample", "collate"} and bool(NEGATIVE.search(failure.message))


def _strides_finding(name: str, split: Split, failures: list[Failure]) -> Finding:
    first, count = failures[0], sum(f.count for f in failures)
    ids = list(dict.fromkeys(i for f in failures for i in f.at or f.batch))
    journey, step = _runs_backwards(split, ids)
    frame = first.user_frame
    file, line = _place(step, frame)
    read = split.samples + split.spread
    evidence = {
        "failed": count,
        "read": read,
        "samples": ids,
        "refused_by": (journey.failed_stage if journey else "")
        or (frame.function if frame else ""),
        "refused_at": f"{frame.file}:{frame.line}" if frame else "",
        "strides": list(step.after.strides) if step else [],
        "error": first.message[:MOST_TEXT],
        **(ways.step_facts(step) if step else {}),
    }
    field = next(iter(step.fields), None) if step else None
    stage = ways.stage(step) if step else None
    where = Where(name or None, field, stage, ids[0] if ids else None, file, line)
    maker = f"{stage}{ways.at(step)} makes" if step else "a flip makes"
    if first.phase == "collate":
        failed = f"{count} batches failed, e.g. that of sample {joined(ids[:1])}"
    else:
        failed = f"{some(max(count, len(ids)), ids)} failed, {read} others could be read"
    message = f"{maker} a view with negative strides, which torch refuses: {failed}"
    return Finding(message, where, evidence, explains=frozenset(f.key for f in failures))


def _place(step: Step | None, frame: Frame | None) -> ways.Place:
    place = step or frame
    return (place.file, place.line) if place else (None, None)


def _runs_backwards(split: Split, ids: list[Any]) -> tuple[Journey | None, Step | None]:
    """Find the step that turned an array round, in the failed samples first."""
    failed = [way for i in ids if (way := ways.way_of(split, i))]
    # Another sample that took the flip is as good a witness, whether it failed for it or not.
    others = [j for j in split.journeys.values() if j.reproduced is not False]
    for journey in [*failed, *others]:
        for step in journey.steps:
            if step.after.strides and not (step.before and step.before.strides):
                return journey, step
    return next(iter(failed), None), None
