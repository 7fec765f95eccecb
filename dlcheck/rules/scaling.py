"""DLC301, DLC302: values scaled not at all or twice, as the stages and their figures tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlcheck.findings import ERROR, Finding, Where, rule
from dlcheck.observation import Journey, Observation, Split, State, Step
from dlcheck.rules import ways
from dlcheck.rules.applied import (
    Passed,
    divides_by_byte,
    for_bytes,
    for_unit,
    passed,
    statistics,
    told,
)
from dlcheck.rules.words import joined, named

# A value this many deviations from the mean was not meant by that mean.
FAR = 6.0
ABSURD = 20.0
UNSCALED = 8.0
UNIT = 1.5
ALREADY = 2.0
BYTES = (100.0, 256.5)
NEGATIVE = -0.25
APART = 0.15
LOW_SLACK = 0.1
SPILL = 50.0
USUAL = 8.0
IMAGE_AXES = 2
COLOURS = 3
MAKES_TENSORS = ("ToTensor", "ToImage", "ToDtype", "ConvertImageDtype", "ToTensorV2", "from_numpy",
                 "as_tensor", "float", "astype", "tensor")  # fmt: skip


@rule(
    "DLC301",
    severity=ERROR,
    needs="samples",
    title="Values and the mean and std applied to them are of different scales",
    why="ToTensor and its kin divide by 255 only what is uint8; 0..255 floats pass unchanged, and "
    "a mean of 0.485 then leaves values in the hundreds, on which training diverges or stalls.",
    fix="Divide by 255 where the array is loaded (or keep it uint8 until ToTensor), and give "
    "Normalize statistics of the scale that it is given.",
)
def not_scaled(obs: Observation) -> Iterator[Finding]:
    """Fire where a stage's mean and std are of 0..1 and its input of 0..255, or the reverse.

    Also where some samples are scaled and others are not, and where `expect` wants a small range
    and 0..255 floats come out. Silent on statistics that fit, and on units of other kinds.
    """
    findings = [
        finding
        for name, split in obs.splits.items()
        for field in _fields(split)
        if (
            finding := _unscaled(name, split, field)
            or _spilled(name, split, field)
            or _refuted(name, split, field)
        )
    ]
    if not findings:
        ways.need_journeys(obs)
    yield from findings


@rule(
    "DLC302",
    severity=ERROR,
    needs="samples",
    title="Values are scaled or normalised twice",
    why="Each half looks right on its own: the dataset normalises and so does the collate or a "
    "later stage, and the model is given values that no image has.",
    fix="Keep one of the two stages.",
)
def double_scaled(obs: Observation) -> Iterator[Finding]:
    """Fire where two stages on a field's way, the collate's included, scale or normalise it.

    What the stages did is compared, not what the values look like: dark images are none.
    """
    findings = [
        finding
        for name, split in obs.splits.items()
        for field in _fields(split)
        if (finding := _twice(name, split, field))
    ]
    if not findings:
        ways.need_journeys(obs)
    yield from findings


def _fields(split: Split) -> list[str]:
    """Return the traced fields that may be images, volumes or spectra."""
    found = []
    for field in ways.traced_fields(split):
        states = [j.fields[field] for j in ways.ways(split) if field in j.fields]
        if all(len(state.shape or ()) >= IMAGE_AXES for state in states):
            found.append(field)
    return found


@dataclass(frozen=True)
class _Clash:
    """A step whose figures do not fit what it was given."""

    journey: Journey
    chain: list[Passed]
    at: Passed
    other: Passed | None = None
    why: str = ""
    certain: bool = True


def _unscaled(name: str, split: Split, field: str) -> Finding | None:
    clashes, straight = [], []
    for journey in ways.ways(split):
        if field not in journey.fields:
            continue
        chain = passed(split, journey, field)
        bad = next((one for one in chain if _far(one.step) or _tiny(one.step)), None)
        if bad is not None:
            clashes.append(_Clash(journey, chain, bad))
        else:
            straight.append(journey)
    if not clashes:
        return None
    clash = clashes[0]
    step = clash.at.step
    should = _should_have_scaled(clash.chain, step)
    before = step.before or State("unknown")
    given = f"values of {_range(before)}"
    stage = ways.stage(should)
    message = (
        f"{ways.stage(step)} applies {told(step)} to {given}, which leaves {_range(step.after)}"
    )
    if for_unit(step):
        message += f": {named(field)} was not scaled to 0..1"
        message += f" ({stage} left {_range(should.after)})" if should is not step else ""
    else:
        message += f": these are statistics of 0..255, and {named(field)} was scaled before"
    if straight:
        message += f"; of {len(clashes) + len(straight)} samples traced {len(clashes)} are so"
    where = Where(
        name or None, field, stage, clash.journey.sample, should.file or None,
        should.line or None,
    )  # fmt: skip
    evidence = {
        **ways.step_facts(step), "statistics": told(step), "given": _range(before),
        "range": _range(step.after), "should_have_scaled": ways.step_facts(should),
        "samples": [c.journey.sample for c in clashes],
        "others": [j.sample for j in straight],
    }  # fmt: skip
    return Finding(message, where, evidence)


def _far(step: Step) -> bool:
    """Tell statistics of 0..1 that were applied to values far above 1."""
    before, figures = step.before, statistics(step)
    if before is None or figures is None or before.high is None or before.mean is None:
        return False
    mean, std = max(figures[0]), max(figures[1])
    high = abs(step.after.high or 0.0)
    away = (before.mean - mean) / std
    return for_unit(step) and before.high > UNSCALED and away > FAR and high > ABSURD


def _tiny(step: Step) -> bool:
    """Tell statistics of 0..255 that were applied to values of 0..1."""
    before = step.before
    if before is None or before.high is None or before.low is None:
        return False
    small = before.high <= UNIT and before.low >= -UNIT and before.high > before.low
    return small and for_bytes(step) and not divides_by_byte(step)


def _should_have_scaled(chain: list[Passed], step: Step) -> Step:
    """Find the stage before that made floats or a tensor without scaling; else the first step."""
    if not for_unit(step):
        return step
    steps = [one.step for one in chain]
    earlier = steps[: steps.index(step)]
    for one in reversed(earlier):
        if one.stage.rpartition(".")[2] in MAKES_TENSORS and not one.scale:
            return one
    return earlier[-1] if earlier else step


def _spilled(name: str, split: Split, field: str) -> Finding | None:
    """Find samples far outside of the range that the steps seen in the journeys can give."""
    seen = split.fields.get(field)
    drawn = [j for j in ways.ways(split) if field in j.fields]
    if seen is None or seen.high is None or len(drawn) < ALREADY:
        return None
    lasts = {n: _last_scaling(passed(split, journey, field)) for n, journey in enumerate(drawn)}
    steps = [step for step in lasts.values() if step is not None]
    others = [drawn[n] for n, step in lasts.items() if step is None]
    if not steps:
        return _of_two_scales(name, field, drawn)
    usual = max(
        [drawn[n].fields[field].high or 0.0 for n, step in lasts.items() if step], default=0
    )
    wild = max(USUAL, usual) * SPILL / USUAL
    if usual > USUAL or any((j.fields[field].high or 0.0) < wild for j in others):
        return None
    if seen.high < wild or any("float" not in dtype for dtype in ways.dtypes(split, field)):
        return None
    step, odd = steps[0], others[0] if others else None
    some = f"sample {odd.sample}" if odd else "some samples"
    message = (
        f"{some} of {named(field)} reach {seen.high:.4g}, while {len(steps)} samples traced end at "
        f"{usual:.4g} after {ways.stage(step)}{ways.at(step)}: not all were scaled"
    )
    where = Where(
        name or None, field, ways.stage(step), odd.sample if odd else None, step.file, step.line
    )  # fmt: skip
    evidence = {**ways.step_facts(step), "high": seen.high, "low": seen.low, "usual_high": usual,
                "scaled": len(steps), "not_scaled": [j.sample for j in others]}  # fmt: skip
    return Finding(message, where, evidence)


def _of_two_scales(name: str, field: str, drawn: list[Journey]) -> Finding | None:
    """Find colour images of 0..1 beside such of 0..255, where nothing on the way scales them."""
    finals = [journey.fields[field] for journey in drawn]
    colour = all(ways.channels(s) == COLOURS and "float" in (s.dtype or "") for s in finals)
    known = all(s.low is not None and s.high is not None and s.low >= 0 for s in finals)
    if not colour or not known:
        return None
    small = [j for j in drawn if (j.fields[field].high or 0.0) <= 1 and not j.fields[field].ids]
    large = [j for j in drawn if BYTES[0] <= (j.fields[field].high or 0.0) <= BYTES[1]]
    if not small or not large or len(small) + len(large) < len(drawn):
        return None
    odd, usual = (large[0], small[0]) if len(large) <= len(small) else (small[0], large[0])
    file, line = ways.returned(odd)
    message = (
        f"sample {odd.sample} of {named(field)} is of {_range(odd.fields[field])} and sample "
        f"{usual.sample} of {_range(usual.fields[field])}: not all were scaled"
    )
    path = odd.opened[-1].path if odd.opened else None
    where = Where(name or None, field, None, odd.sample, file, line, path=path)
    evidence = {"of_0_to_1": [j.sample for j in small], "of_0_to_255": [j.sample for j in large]}
    return Finding(message, where, evidence)


def _last_scaling(chain: list[Passed]) -> Step | None:
    """Return the last step that changed the range, where it scales bytes or normalises."""
    moved = [one.step for one in chain if ways.changes(one.step, "range") and one.step.before]
    last = moved[-1] if moved else None
    return last if last and (divides_by_byte(last) or for_unit(last)) else None


def _refuted(name: str, split: Split, field: str) -> Finding | None:
    """Compare 0..255 floats with a small range that the config wants."""
    said = ways.expected(split, field)
    wanted, high = said.get("range"), None
    if isinstance(wanted, list | tuple) and len(wanted) == len(BYTES):
        high = wanted[1]
    small = isinstance(high, int | float) and 0 < high <= ABSURD
    if not (small or (said.get("normalize") and high is None)):
        return None
    seen = split.batch_fields.get(field) or split.fields.get(field)
    drawn = [j for j in ways.ways(split) if field in j.fields]
    if seen is None or seen.high is None or not drawn or (seen.low or 0.0) < 0:
        return None
    floats = all("float" in dtype for dtype in seen.dtypes)
    if not floats or not BYTES[0] <= seen.high <= BYTES[1]:
        return None
    chain = passed(split, drawn[0], field)
    step = next((p.step for p in reversed(chain) if "float" in (p.step.after.dtype or "")), None)
    what = f"range {joined(wanted or ())}" if small else f"normalize {said.get('normalize')}"
    message = (
        f"{named(field)} holds 0..255 floats ({_span(seen.low, seen.high)}) where expect says "
        f"{what}: nothing on its way scales it"
    )
    file, line = (step.file, step.line) if step else ways.returned(drawn[0])
    where = Where(
        name or None, field, ways.stage(step) if step else None, drawn[0].sample, file, line
    )  # fmt: skip
    evidence = {"expected": what, "range": _span(seen.low, seen.high),
                **(ways.step_facts(step) if step else {})}  # fmt: skip
    return Finding(message, where, evidence)


def _twice(name: str, split: Split, field: str) -> Finding | None:
    found = []
    for journey in ways.ways(split):
        if field in journey.fields:
            chain = passed(split, journey, field)
            clash = _normalised_twice(journey, chain) or _scaled_twice(journey, chain)
            found.append(clash)
    clashes = [clash for clash in found if clash is not None]
    if not clashes or (not clashes[0].certain and len(clashes) < len(found)):
        return None
    clash = clashes[0]
    step, before = clash.at.step, clash.at.step.before or State("unknown")
    place = " in the collate function" if clash.at.batch else ""
    first = clash.other.step if clash.other else None
    by = f" after {ways.stage(first)}{ways.at(first)}" if first else ""
    message = (
        f"{named(field)} is {clash.why} twice: {ways.stage(step)}{place}{by} was given "
        f"{_range(before)} and left {_range(step.after)}"
    )
    where = Where(
        name or None, field, ways.stage(step), clash.journey.sample, step.file or None,
        step.line or None,
    )  # fmt: skip
    evidence: dict[str, Any] = {
        **ways.step_facts(step), "statistics": told(step), "given": _range(before),
        "range": _range(step.after), "first": ways.step_facts(first) if first else {},
        "samples": [c.journey.sample for c in clashes], "traced": len(found),
    }  # fmt: skip
    return Finding(message, where, evidence)


def _normalised_twice(journey: Journey, chain: list[Passed]) -> _Clash | None:
    """Find a stage with statistics of 0..1 that was given values which another had centred."""
    first: Passed | None = None
    for one in chain:
        step, before, figures = one.step, one.step.before, statistics(one.step)
        if before is None or figures is None:
            continue
        centred = before.low is not None and before.low < NEGATIVE and before.mean is not None
        unlike = before.low is not None and before.low <= -1 + LOW_SLACK
        small = (before.high or 0.0) <= ABSURD and not _far(step)
        if first is None and unlike and small and for_unit(step) and len(step.scale) != 1:
            return _Clash(journey, chain, one, None, "normalised", certain=False)
        own = abs((before.mean or 0.0) - sum(figures[0]) / len(figures[0])) < APART
        if first and centred and for_unit(step) and not own and not _far(step):
            return _Clash(journey, chain, one, first, "normalised")
        if for_unit(step) or for_bytes(step):
            first = one
    return None


def _scaled_twice(journey: Journey, chain: list[Passed]) -> _Clash | None:
    """Find a division by 255 of values that were of 0..1 already."""
    first: Passed | None = None
    for one in chain:
        before = one.step.before
        if before is None or not divides_by_byte(one.step) or before.high is None:
            continue
        low = before.low or 0.0
        if first and before.high <= ALREADY:
            return _Clash(journey, chain, one, first, "scaled")
        fractions = "float" in (before.dtype or "") and not before.ids and before.high > low
        if first is None and fractions and low >= -1 and before.high <= 1 + 1e-3:
            return _Clash(journey, chain, one, _scaled_before(chain, one), "scaled", certain=False)
        first = one
    return None


def _scaled_before(chain: list[Passed], one: Passed) -> Passed | None:
    """Return the step whose result was of 0..1: the one that made the values or loaded them."""
    earlier = chain[: chain.index(one)]
    return next((p for p in earlier if (p.step.after.high or ABSURD) <= 1 + 1e-3), None)


def _range(state: State) -> str:
    return _span(state.low, state.high)


def _span(low: float | None, high: float | None) -> str:
    ends = ["unknown" if x is None else f"{x:.4g}" for x in (low, high)]
    return " to ".join(ends)
