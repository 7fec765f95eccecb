"""`expect:` compared with what was seen of a field, key by key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlcheck.observation import (
    Field,
    Journey,
    SampleId,
    Split,
    Step,
    shape_of,
)
from dlcheck.rules import normalising, ways
from dlcheck.rules.words import joined, named, number

BYTE = 255.0
ROUNDING = 0.01
MARGIN = 0.1
DARKEST = 0.2
MANY = 8
MOST_VALUES = 8
SPATIAL = 2
REST = "..."
OPEN = (None, -1, "?", "*")
# Stages that may put values anywhere by design, after all else is done.
LOOSE = re.compile(r"erasing|dropout|cutout|noise|mixup|cutmix", re.IGNORECASE)
ALIASES = {"int": "int64", "float": "float64", "bool": "bool"}
Said = Mapping[str, Any]


@dataclass(frozen=True)
class Broken:
    """One key of `expect` that a field breaks; `step` last changed what the key speaks of."""

    key: str
    expected: str
    seen: str
    sample: SampleId | None = None
    step: Step | None = None
    journey: Journey | None = None


def expectations(split: Split) -> Iterator[tuple[str, Said]]:
    """Yield each field that was seen with what `expect` says of it."""
    for field in dict.fromkeys([*split.fields, *split.batch_fields]):
        said = ways.expected(split, field)
        if said:
            yield field, said


def broken(split: Split, field: str, said: Said) -> Iterator[Broken]:
    """Yield the keys that a field breaks, one finding's worth each."""
    seen, batched = subject(split, field)
    if seen is None:
        return
    checks = [
        _shape(split, field, said, seen, batched=batched),
        _dtype(split, field, said, seen),
        _range(split, field, said, seen),
        _values(said, seen),
        _layout(split, field, said),
        _colour(split, field, said),
        _normalize(split, field, said, seen),
        _pairs(split, field, said),
    ]
    yield from [one for one in checks if one is not None]


def subject(split: Split, field: str) -> tuple[Field | None, bool]:
    """Choose what the contract speaks of: batches, or samples where those are only stacked.

    The second item tells whether shapes begin with the batch's axis.
    """
    samples, batches = split.fields.get(field), split.batch_fields.get(field)
    stacked = split.loader is not None and split.loader.default_collate
    if samples is not None and (stacked or not split.batches):
        return samples, False
    return batches, True


def _shape(split: Split, field: str, said: Said, seen: Field, *, batched: bool) -> Broken | None:
    wanted = said.get("shape")
    if not isinstance(wanted, list | tuple):
        return None
    shapes = {text: tally for text, tally in seen.shapes.items() if shape_of(text) is not None}
    for text, tally in shapes.items():
        shape = (shape_of(text) or ())[1 if batched else 0 :]
        if not fits(shape, wanted):
            step, journey = ways.last_change(split, field, "shape")
            at = None if batched else next(iter(tally.at), None)
            expected = f"[{joined('*' if size in OPEN else size for size in wanted)}]"
            return Broken("shape", expected, f"[{joined(shape)}]", at, step, journey)
    return None


def fits(shape: Sequence[int], wanted: Sequence[Any]) -> bool:
    """Compare with a declared shape, in which any size may be left open."""
    return len(shape) == len(wanted) and all(
        w in OPEN or w == s for s, w in zip(shape, wanted, strict=True)
    )


def dtype_names(wanted: Any) -> list[str]:
    """Read a dtype, `{_obj_: torch.float32}` or a list of them as bare names."""
    if isinstance(wanted, list | tuple):
        return [name for one in wanted for name in dtype_names(one)]
    given = wanted.get("_obj_", "") if isinstance(wanted, Mapping) else wanted
    return [str(given).rpartition(".")[2]] if given else []


def _dtype(split: Split, field: str, said: Said, seen: Field) -> Broken | None:
    wanted = dtype_names(said.get("dtype"))
    if not wanted:
        return None
    if split.given.get("step") and set(seen.dtypes) == {"uint8"}:
        return None
    batches = split.batch_fields.get(field)
    dtypes = (batches.dtypes if batches and batches.dtypes else seen.dtypes) or {}
    allowed = {*wanted, *(ALIASES.get(name, name) for name in wanted)}
    for name, tally in dtypes.items():
        if name in allowed or name == "...":
            continue
        step, journey = ways.last_change(split, field, "dtype")
        at = next(iter(seen.dtypes.get(name, tally).at), None) if name in seen.dtypes else None
        return Broken("dtype", " or ".join(wanted), name, at, step, journey)
    return None


def _range(split: Split, field: str, said: Said, seen: Field) -> Broken | None:
    wanted = said.get("range")
    if not isinstance(wanted, list | tuple) or len(wanted) != SPATIAL or seen.low is None:
        return None
    if _cast_later(split, seen) or seen.high is None:
        return None
    low, high = float(wanted[0]), float(wanted[1])
    slack = ROUNDING * max(high - low, 1e-6)
    if _loose(split, field):
        slack = high - low
    if low - slack <= seen.low and seen.high <= high + slack:
        return None
    step, journey = ways.last_change(split, field, "range")
    told = f"{number(seen.low)}..{number(seen.high)}"
    return Broken("range", f"{number(low)}..{number(high)}", told, None, step, journey)


def _cast_later(split: Split, seen: Field) -> bool:
    """Tell a uint8 batch that the step may yet scale on the device."""
    return bool(split.given.get("step")) and set(seen.dtypes) == {"uint8"}


def _loose(split: Split, field: str) -> bool:
    stages = [step.stage for way in ways.ways(split) for step in ways.chain(way, field)]
    return any(LOOSE.search(stage) for stage in stages)


def _values(said: Said, seen: Field) -> Broken | None:
    wanted = said.get("values")
    numbers = [v for v in wanted if isinstance(v, int | float)] if isinstance(wanted, list) else []
    if not numbers or len(numbers) != len(wanted or ()):
        return None
    allowed = {float(value) for value in numbers} | _ignored(said)
    found = distinct(seen)
    strange = sorted(value for value in found if value not in allowed)
    if strange:
        shown = joined(number(value) for value in strange[:MOST_VALUES])
        at = next(iter(found[strange[0]]), None)
        return Broken("values", f"[{joined(map(number, sorted(allowed)))}]", shown, at)
    ends = [end for end in (seen.low, seen.high) if end is not None]
    outside = [end for end in ends if not min(allowed) <= end <= max(allowed)]
    if outside:
        listed = f"[{joined(map(number, sorted(allowed)))}]"
        return Broken("values", listed, joined(map(number, outside)))
    return None


def distinct(seen: Field) -> dict[float, tuple[SampleId, ...]]:
    """Return the distinct whole numbers of a field with samples that have them, where counted."""
    return {float(text): tally.at for text, tally in seen.values.items() if text != REST}


def _ignored(said: Said) -> set[float]:
    given = said.get("ignore_index")
    listed = given if isinstance(given, list) else [] if given is None else [given]
    return {float(value) for value in listed}


def _layout(split: Split, field: str, said: Said) -> Broken | None:
    wanted, known = str(said.get("layout") or "").upper(), ways.layout(split, field)
    if not wanted or not known or wanted == known or set(wanted) != set(known):
        return None
    if not ways.batched_as_it_is(split, field) or _step_permutes(split, field):
        return None
    step, journey = ways.last_change(split, field, "layout")
    return Broken("layout", wanted, known, None, step, journey)


def _step_permutes(split: Split, field: str) -> bool:
    return bool(split.given.get("step")) and ways.dtypes(split, field) == {"uint8"}


def _colour(split: Split, field: str, said: Said) -> Broken | None:
    wanted = str(said.get("colour") or "").lower()
    if wanted not in ("rgb", "bgr"):
        return None
    other = "bgr" if wanted == "rgb" else "rgb"
    told = [w for w in ways.ways(split) if {wanted, other} <= set(w.colours.get(field, {}))]
    wrong = [w for w in told if w.colours[field][other] - w.colours[field][wanted] > MARGIN]
    if not wrong or 2 * len(wrong) <= len(told):
        return None
    opened = ways.reader(wrong[0].opened, other.upper())
    seen = f"{other.upper()} (as {opened.by} gives it)" if opened and opened.by else other.upper()
    return Broken("colour", wanted.upper(), seen, wrong[0].sample, None, wrong[0])


def _normalize(split: Split, field: str, said: Said, seen: Field) -> Broken | None:
    wanted = normalising.wanted(said.get("normalize"))
    if wanted is None or _cast_later(split, seen):
        return None
    shown = normalising.told(wanted)
    for journey in ways.ways(split):
        last = normalising.last_used(journey, field)
        if last is None:
            continue
        step, used = last
        if normalising.same(used, wanted):
            return None
        return Broken("normalize", shown, normalising.told(used), None, step, journey)
    if _never_normalised(split, field, wanted, seen):
        told = f"{number(seen.low)}..{number(seen.high)}, which nothing normalised"
        changed, way = ways.last_change(split, field, "range")
        return Broken("normalize", shown, told, None, changed, way)
    return None


def _pairs(split: Split, field: str, said: Said) -> Broken | None:
    """Compare sizes with those of the partner; a whole ratio that never changes is a stride."""
    wanted = said.get("pairs_with")
    for partner in wanted if isinstance(wanted, list) else [wanted] if wanted else []:
        ratios: set[tuple[float, float]] = set()
        for way in ways.ways(split):
            states = way.fields.get(field), way.fields.get(str(partner))
            mine, other = (ways.size(state) if state else None for state in states)
            if mine is None or other is None or 0 in mine or 0 in other:
                continue
            ratios.add((other[0] / mine[0], other[1] / mine[1]))
            if len(ratios) > 1 or not _is_stride(*next(iter(ratios))):
                step, _ = ways.last_change(split, field, "shape")
                expected = f"that of {named(str(partner))}, {other[0]}x{other[1]}"
                seen = f"{mine[0]}x{mine[1]}"
                return Broken("a size (pairs_with)", expected, seen, way.sample, step, way)
    return None


def _is_stride(height: float, width: float) -> bool:
    """Tell one whole factor for both sides, up or down."""
    factor = max(height, 1 / height)
    return height == width and abs(factor - round(factor)) < ROUNDING


def _never_normalised(
    split: Split, field: str, wanted: normalising.Statistics, seen: Field
) -> bool:
    """Tell values that no normalisation with this mean can have left: none of many is below 0."""
    if seen.low is None or seen.n < MANY or not ways.batched_as_it_is(split, field):
        return False
    # A dark image is below the mean somewhere; that of a byte scale is a hundred times as far off.
    return seen.low >= 0 and min(wanted[0]) > DARKEST * (BYTE if max(wanted[0]) > 1 else 1.0)
