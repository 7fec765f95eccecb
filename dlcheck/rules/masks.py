"""DLC308: masks whose ids are no longer those of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlcheck.findings import ERROR, WARNING, Finding, NotApplicable, Severity, Where, rule
from dlcheck.observation import Journey, Observation, Split, State, Step
from dlcheck.rules import ways
from dlcheck.rules.words import joined, named

LEAST = 0.001
FEWEST_SIDE = 8
AXES = 2
BYTE = 255.0
SMALL = 100.0
OVERSHOOT = 0.3
MANY = 20
MOST_TEXT = 120
CLEAR = 0.1
CLOSE = 1e-4
NAMES = re.compile(r"mask|label|seg|target|annot|(^|[_.])(gt|lbl|y)($|[_.\d])|^1$", re.IGNORECASE)
TAKES_SHARES = re.compile(r"BCE|binary_cross_entropy|Dice|Focal|Jaccard", re.IGNORECASE)
GEOMETRIC = re.compile(
    r"resi[zs]e|rescale|zoom|interpol|rotat|affine|warp|perspective|elastic|distort|shear|scale"
    r"|transform|remap|crop|grid|imresize|thumbnail|reduce",
    re.IGNORECASE,
)


@rule(
    "DLC308",
    severity=ERROR,
    needs="samples",
    title="A mask's ids are not those of its file",
    why="Interpolating between class 0 and class 5 makes pixels of classes 2 and 3, which are "
    "nowhere in the picture; 0/255 where 0/1 is expected, and ids divided by 255, lose classes.",
    fix="Resize and rotate masks with nearest (Image.NEAREST, cv2.INTER_NEAREST, "
    "InterpolationMode.NEAREST, tv_tensors.Mask), and turn them into tensors without scaling: "
    "torch.as_tensor(np.array(mask), dtype=torch.int64).",
)
def mask_values(obs: Observation) -> Iterator[Finding]:
    """Fire where ids appear on a mask's way that its file does not hold, or are lost.

    Silent on soft masks, on 255 as ignore index, and where a threshold follows.
    """
    masks = [
        (name, split, field)
        for name, split in obs.splits.items()
        for field in ways.traced_fields(split)
        if is_mask(split, field)
    ]
    found = [finding for name, split, field in masks if (finding := _judged(name, split, field))]
    if not found:
        ways.need_journeys(obs)
        if not masks:
            raise NotApplicable("no field is known to be a mask")
    yield from found


def is_mask(split: Split, field: str) -> bool:
    """Tell a map of ids beside an image of its size; what may be something else is none."""
    kind = ways.declared(split, field).get("kind")
    drawn = [j for j in ways.ways(split) if field in j.fields]
    if kind is not None or not drawn:
        return kind == "mask"
    if any(j.fields[field].type == "Mask" for j in drawn):
        return True
    flat = all(_plane(j.fields[field]) for j in drawn)
    few = any(_ids(state) for j in drawn for step in ways.own_chain(j, field)
              for state in ways.states(step))  # fmt: skip
    few = few or any(_ids(j.fields[field]) for j in drawn)
    return flat and few and bool(NAMES.search(field)) and all(_beside(j, field) for j in drawn)


def _plane(state: State) -> bool:
    sides = [size for size in state.shape or () if size != 1]
    return len(sides) == AXES and min(sides) >= FEWEST_SIDE


def _beside(journey: Journey, field: str) -> bool:
    """Tell whether the sample holds a picture of the same size that is no map of ids itself."""
    size = ways.size(journey.fields[field])
    others = [s for name, s in journey.fields.items() if name != field and not s.ids]
    return size is not None and any(ways.size(other) == size for other in others)


def _ids(state: State | None) -> tuple[float, ...]:
    """Return the ids of a map: few values, all of them whole."""
    if state is None or any(value != int(value) for value in state.ids):
        return ()
    return state.ids


@dataclass(frozen=True)
class _Fault:
    message: str
    journey: Journey
    step: Step | None
    facts: dict[str, Any]
    severity: Severity = ERROR


def _judged(name: str, split: Split, field: str) -> Finding | None:
    fault = (
        _interpolated(split, field)
        or _divided(split, field)
        or _ignore_lost(split, field)
        or _bytes(split, field)
    )
    if fault is None:
        return None
    step, journey = fault.step, fault.journey
    file, line = (step.file, step.line) if step else ways.returned(journey)
    stage = ways.stage(step) if step else None
    path = journey.opened[-1].path if journey.opened else None
    where = Where(name or None, field, stage, journey.sample, file, line, path=path)
    evidence = {**(ways.step_facts(step) if step else {}), **fault.facts}
    return Finding(fault.message, where, evidence, severity=fault.severity)


def _drawn(split: Split, field: str) -> list[Journey]:
    return [journey for journey in ways.ways(split) if field in journey.fields]


def _interpolated(split: Split, field: str) -> _Fault | None:
    """Find the stage that made ids between those that it was given."""
    found: list[tuple[Journey, Step]] = []
    for journey in _drawn(split, field):
        chain = ways.own_chain(journey, field)
        step = next((step for step in chain if _makes_ids(step)), None)
        if step is not None and not _healed(split, field, journey, chain, step):
            found.append((journey, step))
    if not found:
        return None
    journey, step = max(found, key=lambda one: one[1].invented)
    before, after = _ids(step.before), step.after.ids
    new = [value for value in after if value not in before]
    share = (
        f", {step.invented:.1%} of the pixels with an id that was not there"
        if step.invented
        else ""
    )
    made = f"{_text(after)}" if after else "more than 24 values"
    stage = ways.stage(step) if GEOMETRIC.search(step.stage) else step.text.strip()[:MOST_TEXT]
    message = (
        f"{stage} interpolates the mask {named(field)}: of the ids {_text(before)} it made "
        f"{made}{share}"
    )
    facts = {"ids_before": list(before), "ids_after": list(after), "new_ids": new,
             "share": step.invented, "samples": [j.sample for j, _ in found],
             "finished": list(journey.fields[field].ids)}  # fmt: skip
    return _Fault(message, journey, step, facts)


def _makes_ids(step: Step) -> bool:
    before, after = _ids(step.before), step.after
    if not before or step.before is None:
        return False
    if step.invented >= LEAST:
        return True
    resized = ways.size(step.before) != ways.size(after)
    moved = bool(GEOMETRIC.search(step.stage) or GEOMETRIC.search(step.text)) and not step.scale
    if not (resized or moved):
        return False
    if after.ids:
        return sum(before[0] < v < before[-1] and v not in before for v in after.ids) >= AXES
    unit = before == (0.0, BYTE) and _of_like_range(after, 0.0, 1.0)
    return unit or _of_like_range(after, before[0], before[-1])


def _of_like_range(state: State, low: float, high: float) -> bool:
    """Tell many values between the ends of the ids, or little beyond, from other units."""
    if state.low is None or state.high is None or state.low == state.high:
        return False
    reach = OVERSHOOT * (high - low)
    inside = low - reach <= state.low and state.high <= high + reach
    return inside and state.high > (low + high) / AXES


def _healed(split: Split, field: str, journey: Journey, chain: list[Step], step: Step) -> bool:
    """Tell masks that are meant to be soft, or that a threshold made whole again."""
    final, before = journey.fields[field], _ids(step.before)
    said = ways.expected(split, field)
    if len(final.ids) == AXES:
        return True
    first = next((ids for one in chain for state in ways.states(one) if (ids := _ids(state))), ())
    if not step.invented and final.ids and set(final.ids) <= set(first):
        return True
    soft = len(before) == AXES and "float" in (final.dtype or "")
    return soft and not (said.get("values") or said.get("classes"))


def _divided(split: Split, field: str) -> _Fault | None:
    """Find the stage that divided class ids by 255, as ToTensor does."""
    for journey in _drawn(split, field):
        for step in ways.own_chain(journey, field):
            before, after = _ids(step.before), step.after.ids
            if _is_byte_share(before, step.after):
                message = (
                    f"{ways.stage(step)} divides the ids {_text(before)} of the mask "
                    f"{named(field)} by 255"
                )
                facts = {"ids_before": list(before), "ids_after": list(after),
                         "finished": list(journey.fields[field].ids)}  # fmt: skip
                return _Fault(message, journey, step, facts)
    return None


def _is_byte_share(before: tuple[float, ...], after: State) -> bool:
    """Tell ids divided by 255, some lost by a crop or some blended in a resize."""
    if (
        len(before) <= 1
        or before[0] < 0
        or before[-1] > SMALL
        or "float" not in (after.dtype or "")
    ):
        return False
    if after.low is None or after.high is None:
        return False
    most = before[-1] / BYTE * (1 + OVERSHOOT)
    blended = not after.ids and after.low >= -most and before[0] / BYTE < after.high <= most
    wanted = [value / BYTE for value in before]
    same = [min(abs(a - w) for w in wanted) <= CLOSE for a in after.ids]
    return blended or (len(after.ids) > 1 and all(same))


def _ignore_lost(split: Split, field: str) -> _Fault | None:
    """Find the stage after which the declared ignore index is gone."""
    ignore = ways.expected(split, field).get("ignore_index")
    if not isinstance(ignore, int):
        return None
    for journey in _drawn(split, field):
        final = journey.fields[field]
        for step in ways.own_chain(journey, field):
            before, after = _ids(step.before), step.after
            same = step.before is not None and ways.size(step.before) == ways.size(after)
            gone = after.ids and ignore not in after.ids and ignore not in final.ids
            if ignore in before and same and gone:
                message = (
                    f"{ways.stage(step)} loses the ignore index {ignore} of the mask "
                    f"{named(field)}: {_text(before)} became {_text(after.ids)}"
                )
                facts = {"ids_before": list(before), "ids_after": list(after.ids),
                         "ignore_index": ignore}  # fmt: skip
                return _Fault(message, journey, step, facts)
    return None


def _bytes(split: Split, field: str) -> _Fault | None:
    """Find masks of 0 and 255 where classes are counted from 0."""
    drawn = _drawn(split, field)
    ids = {value for j in drawn for value in _ids(j.fields[field])}
    seen = split.fields.get(field)
    known = {float(v) for v in seen.values if v != "..."} if seen else set()
    whole = ids | known
    said = ways.expected(split, field)
    if whole != {0.0, BYTE} or BYTE in (said.get("ignore_index"), 0):
        return None
    values, classes = said.get("values"), said.get("classes")
    wanted = ""
    if isinstance(values, list | tuple) and BYTE not in values:
        wanted = f"expect says values {joined(values)}"
    elif isinstance(classes, int) and classes <= BYTE:
        wanted = f"expect says {classes} classes"
    elif TAKES_SHARES.search(str(split.given.get("loss") or "")):
        wanted = "the loss takes 0..1"
    if not wanted and not _alone(split, field, drawn):
        return None
    journey = drawn[0]
    chain = ways.own_chain(journey, field)
    step = chain[-1] if chain else None
    tail = wanted or "and no value between, so that there is no class but 0"
    message = f"the mask {named(field)} holds 0 and 255, {'but ' if wanted else ''}{tail}"
    facts = {"ids": sorted(whole), "expected": wanted}
    return _Fault(message, journey, step, facts, ERROR if wanted else WARNING)


def _alone(split: Split, field: str, drawn: list[Journey]) -> bool:
    """Tell whether 255 is much of many masks, not the thin border that is to be ignored."""
    seen = split.fields.get(field)
    if split.given.get("step") or seen is None or seen.n < MANY or not seen.values:
        return False
    if any(dtype not in ("int64", "float32") for dtype in seen.dtypes):
        return False
    shares = [(j.fields[field].mean or 0.0) / BYTE for j in drawn]
    return sum(share >= CLEAR for share in shares) > len(shares) / AXES


def _text(ids: tuple[float, ...]) -> str:
    text = joined(f"{value:g}" for value in ids[:MANY])
    return "{" + text + (", ..." if len(ids) > MANY else "") + "}"
