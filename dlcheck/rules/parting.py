"""Where the ways of two samples part: the stage after which their shapes differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlcheck.observation import Journey, SampleId, Split, State, Step, shape_text
from dlcheck.rules import ways
from dlcheck.rules.collate import Cause, minority

Key = tuple[str, int, str, int | None, int]


@dataclass(frozen=True)
class Parting:
    """The step that left the odd sample of another shape, and what it did to a usual one.

    `step` is None where the odd sample did not pass the usual one's step at all.
    """

    odd: Journey
    step: Step | None
    usual: Journey
    usual_step: Step | None


def parting(split: Split, cause: Cause) -> Parting | None:
    """Find where the odd sample of a failed batch and the usual ones part; None without journeys.

    Files of unequal size differ from the start, which is no fault: then it is the stage that
    gave the usual samples one shape and failed to do so for the odd one, or else the last stage
    that changed the odd one's size.
    """
    field = cause.field
    odd = _odd(split, cause)
    if odd is None:
        return None
    shape = odd.fields[field].shape
    usual = [j for j in ways.ways(split) if field in j.fields and j.fields[field].shape != shape]
    steps = ways.chain(odd, field)
    if not usual or not steps:
        return None
    usual = _most_alike(usual, field)
    keyed = _keyed(steps)
    others = [_keyed(ways.chain(journey, field)) for journey in usual]
    skipped = next((s for key, s in others[0].items() if key not in keyed and _resizes(s)), None)
    step = _parts_at(keyed, others) or next(filter(_resizes, reversed(steps)), None)
    if step is None and skipped is not None:
        return Parting(odd, None, usual[0], skipped)
    step = step or steps[0]
    other = next((s for s in ways.chain(usual[0], field) if ways.same_place(s, step)), None)
    return Parting(odd, step, usual[0], other)


def told(found: Parting) -> str:
    """Say where the ways part: `Resize(size=64) at data.py:12 left 64x48 of 80x60 ...`."""
    step, other = found.step, found.usual_step
    if step is None:
        skipped = f"{ways.stage(other)}{ways.at(other)}" if other else "a stage"
        return f"sample {found.odd.sample} did not pass {skipped}"
    text = f"{ways.stage(step)}{ways.at(step)} left {_change(step)} (sample {found.odd.sample})"
    return f"{text} beside {_change(other)}" if other else f"{text}, and others did not pass it"


def _change(step: Step) -> str:
    after = shape_text(step.after.shape or ())
    return f"{after} of {shape_text(step.before.shape or ())}" if step.before else after


def _odd(split: Split, cause: Cause) -> Journey | None:
    """Return the journey of a sample with the rarest shape."""
    ids: Sequence[SampleId] = cause.kinds[minority(cause.kinds)]
    drawn = {str(journey.sample): journey for journey in ways.ways(split)}
    known = [drawn[str(i)] for i in ids if str(i) in drawn]
    return next((journey for journey in known if cause.field in journey.fields), None)


def _most_alike(journeys: list[Journey], field: str) -> list[Journey]:
    """Keep the journeys that ended in the commonest shape."""
    by_shape: dict[tuple[int, ...] | None, list[Journey]] = {}
    for journey in journeys:
        by_shape.setdefault(journey.fields[field].shape, []).append(journey)
    return max(by_shape.values(), key=len)


def _keyed(steps: Sequence[Step]) -> dict[Key, Step]:
    """Key steps by line, stage and turn, so that loops compare pass by pass."""
    keyed: dict[Key, Step] = {}
    for step in steps:
        turn = 0
        while (step.file, step.line, step.stage, step.position, turn) in keyed:
            turn += 1
        keyed[step.file, step.line, step.stage, step.position, turn] = step
    return keyed


def _sizes(state: State) -> tuple[int, ...]:
    """Return the sizes of the axes in no order: a permute makes no sample differ."""
    return tuple(sorted(state.shape or ()))


def _parts_at(odd: dict[Key, Step], usual: Sequence[dict[Key, Step]]) -> Step | None:
    """Find the step that leaves the odd sample of another size than the usual ones, all alike.

    Before it all were of one size, or the usual ones were not.
    """
    for key, step in odd.items():
        passed = [one[key] for one in usual if key in one]
        after = {_sizes(other.after) for other in passed}
        if len(after) != 1 or _sizes(step.after) in after or step.before is None:
            continue
        before = {_sizes(other.before) for other in passed if other.before}
        if len(before) > 1 or before == {_sizes(step.before)}:
            return step
    return None


def _resizes(step: Step) -> bool:
    """Tell a step that changed a size from permutes, casts and changes of range."""
    before = step.before
    if before is None or before.shape is None or step.after.shape is None:
        return False
    return sorted(before.shape) != sorted(step.after.shape)
