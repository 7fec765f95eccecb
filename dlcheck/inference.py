"""What a good run shows of each field, as `expect:` says it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dlcheck.observation import Field, Split, shape_of
from dlcheck.rules import kinds, normalising, ways
from dlcheck.rules.expecting import broken, distinct, subject

Expect = dict[str, dict[str, Any]]
Said = dict[str, Any]

BYTE = 255.0
WORD = 65535.0
MANY = 3
ALIKE = 1e-6
COARSE = 0.5
FEWEST_EACH = 3
IGNORED = 255
MOST_CLASSES = 64
RANGED = ("image", "audio", "video", "volume", "target", "mask")
PLACED = ("image", "video", "volume")
COUNTED = ("label", "mask")
# As many of them as a sample happens to have.
COUNTS = ("boxes", "keypoints", "tokens", "audio")
PAIRED = ("boxes", "keypoints")
OPEN = "*"


def expect_of(split: Split, before: Mapping[str, Any] | None = None) -> Expect:
    """Say of each field what was seen; of `before`, the user's own words, what still holds stays.

    Fields without a name of their own (a bare tensor as the sample) cannot be spoken of.
    """
    said = before or {}
    found: Expect = {}
    for name, fields in _names(split, said).items():
        seen = combined(_of_field(split, field) for field in fields)
        kept = _kept(split, fields, said.get(name))
        if kept or seen:
            found[name] = {**seen, **kept}
    return found


def combined(parts: Iterable[Said]) -> Said:
    """Say what holds of several fields (or splits) at once."""
    first, *others = list(parts) or [{}]
    joined = dict(first)
    for other in others:
        joined = {
            key: value
            for key in joined
            if key in other and (value := _either(key, joined[key], other[key])) is not None
        }
    return joined


def together(parts: Sequence[Expect]) -> Expect:
    """Say what holds of several splits at once."""
    names = dict.fromkeys(name for part in parts for name in part)
    joined = {name: combined(part[name] for part in parts if name in part) for name in names}
    return {name: said for name, said in joined.items() if said}


def _either(key: str, one: Any, other: Any) -> Any:
    if one == other:
        return one
    if key == "shape" and len(one) == len(other):
        return [a if a == b else OPEN for a, b in zip(one, other, strict=True)]
    if key == "range":
        return [min(one[0], other[0]), max(one[1], other[1])]
    if key == "classes" and isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    return None


def _names(split: Split, said: Mapping[str, Any]) -> dict[str, list[str]]:
    """Group the fields by the name that speaks of them: the user's, their own, or a pattern.

    A list that holds a thing a sample gives one pattern for all of them.
    """
    fields = split.batch_fields or split.fields
    leaves = [field for field in fields if field and not kinds.is_container(fields[field])]
    names: dict[str, list[str]] = defaultdict(list)
    for field in leaves:
        own = [field] if field in said else [name for name in said if ways.fits(field, name)]
        names[own[0] if own else _pattern(field, leaves)].append(field)
    return dict(names)


def _pattern(field: str, leaves: Sequence[str]) -> str:
    """Open the numbers of a field under which many others stand alike: `1.7.boxes`, `1.*.boxes`."""
    parts = field.split(".")
    for place, part in enumerate(parts[:-1]):
        if part.isdigit():
            before, after = "".join(f"{p}." for p in parts[:place]), ".".join(parts[place + 1 :])
            alike = [one for one in leaves if one.startswith(before) and one.endswith(f".{after}")]
            if len(alike) >= MANY:
                parts[place] = OPEN
    return ".".join(parts)


def _kept(split: Split, fields: Sequence[str], said: Any) -> Said:
    """Keep what the user says of fields and none of them breaks."""
    whole = dict(said) if isinstance(said, Mapping) else {}
    wrong = {one.key.partition(" (")[0] for field in fields for one in broken(split, field, whole)}
    # pairs_with is told as "a size (pairs_with)".
    wrong = {"pairs_with" if key == "a size" else key for key in wrong}
    return {key: value for key, value in whole.items() if key not in wrong}


def _of_field(split: Split, field: str) -> Said:
    seen, batched = subject(split, field)
    if seen is None:
        return {}
    kind = kinds.kind(split, field)
    said: Said = {}
    shape = _shape(split, field, seen, kind, batched=batched)
    if shape is not None:
        said["shape"] = shape
    dtypes = (split.batch_fields.get(field) or seen).dtypes or seen.dtypes
    if len(dtypes) == 1:
        said["dtype"] = next(iter(dtypes))
    if kind.sure(*PLACED) and (layout := ways.layout(split, field)):
        said["layout"] = layout
    statistics = normalising.of_split(split, field)
    if statistics:
        said["normalize"] = _statistics(statistics[1])
    said |= _content(split, seen, kind, statistics[1] if statistics else None)
    wrong = {one.key for one in broken(split, field, said)}
    return {key: value for key, value in said.items() if key not in wrong}


def _shape(
    split: Split, field: str, seen: Field, kind: kinds.Kind, *, batched: bool
) -> list[int | str] | None:
    known = [shape for text in seen.shapes if (shape := shape_of(text)) is not None]
    shapes = [shape[1:] for shape in known if shape] if batched else known
    if not known and not batched:
        # A number of the user's becomes a scalar of the batch.
        numbers = set(seen.types) <= {"int", "float", "bool"} and field in split.batch_fields
        return [] if numbers and seen.types else None
    if not shapes or len({len(shape) for shape in shapes}) > 1:
        return None
    sizes: list[int | str] = [
        axis[0] if len(set(axis)) == 1 else OPEN for axis in zip(*shapes, strict=True)
    ]
    # Of a list that holds a thing a sample, the axis that counts stands where a batch's does.
    if len(sizes) > (kind.name in PAIRED) and kind.sure(*COUNTS):
        sizes[-1 if kind.name == "audio" else 0] = OPEN
    return sizes


def _statistics(figures: normalising.Statistics) -> str | Said:
    for name, known in normalising.PUBLISHED.items():
        if len(figures[0]) > 1 and normalising.same(figures, known):
            return name
    mean, std = (list(values) for values in figures)
    return {"mean": mean, "std": std}


def _content(
    split: Split,
    seen: Field,
    kind: kinds.Kind,
    statistics: normalising.Statistics | None,
) -> Said:
    """Tell classes and values of what counts, the range of what measures."""
    if kind.sure(*COUNTED) and kinds.is_whole(seen):
        found = _classes(split, seen)
        if found or kind.name == "label":
            return found
    if not kind.sure(*RANGED) or seen.low is None or seen.high is None or kinds.is_whole(seen):
        return {}
    return {"range": bounds(seen.low, seen.high, statistics)}


def _classes(split: Split, seen: Field) -> Said:
    """Tell the ids when all of them are sure to have been met: without a gap, each a few times."""
    ids = {int(value) for value in distinct(seen)}
    tallies = {text: tally.n for text, tally in seen.values.items()}
    whole = split.of is not None and split.samples >= split.of
    often = min(tallies.values(), default=0) >= FEWEST_EACH
    if not ids or "..." in tallies or not (whole or often):
        return {}
    if ids == {0, IGNORED}:
        return {"values": [0, IGNORED]}
    ignored = IGNORED in ids and IGNORED - 1 not in ids
    classes = ids - {IGNORED} if ignored else ids
    if min(classes) != 0 or len(classes) != max(classes) + 1 or len(classes) > MOST_CLASSES:
        return {}
    said: Said = {"classes": max(2, len(classes))}
    return said | ({"ignore_index": IGNORED} if ignored else {})


def bounds(
    low: float, high: float, statistics: normalising.Statistics | None = None
) -> list[float]:
    """Return the range that values seen from `low` to `high` belong to, with room for the unseen.

    The usual scales have ends of their own; of others half of what was seen is added to each end.
    """
    for ends in [(0.0, 1.0), (-1.0, 1.0), *_normalised(statistics), (0.0, BYTE), (0.0, WORD)]:
        slack = ALIKE * (ends[1] - ends[0])
        small = (high - low) < COARSE * (ends[1] - ends[0]) and ends[1] > 1
        if ends[0] - slack <= low and high <= ends[1] + slack and not small:
            return [_short(end) for end in ends]
    room = COARSE * (high - low) or abs(high) or 1.0
    floor = 0.0 if low >= 0 else low - room
    return [_short(floor, math.floor), _short(high + room, math.ceil)]


def _normalised(statistics: normalising.Statistics | None) -> list[tuple[float, float]]:
    """Return where 0 and 1 (or 255) come to lie."""
    if statistics is None:
        return []
    mean, std = statistics
    top = BYTE if max(mean) > 1 else 1.0
    pairs = [(m, s) for m, s in zip(mean, std, strict=False) if s]
    if not pairs:
        return []
    lows, highs = ([(end - m) / s for m, s in pairs] for end in (0.0, top))
    return [(math.floor(min(lows) * 100) / 100, math.ceil(max(highs) * 100) / 100)]


def _short(value: float, rounded: Any = round) -> float:
    """Round to two figures; a whole number loses its point."""
    if value and math.isfinite(value) and rounded is not round:
        unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
        value = float(f"{rounded(value / unit) * unit:.3g}")
    return int(value) if float(value).is_integer() else value
