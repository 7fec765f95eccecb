"""Where an evaluation split is made otherwise than the training split: for DLC107."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dlcheck.findings import WARNING, Finding, Where
from dlcheck.observation import Field, Observation, SampleId, Split, Step
from dlcheck.rules import normalising, ways
from dlcheck.rules.expecting import REST, distinct
from dlcheck.rules.kinds import kind
from dlcheck.rules.words import joined, named, number

EVAL, TRAIN = "eval", "train"
MOST_SHOWN = 8
MOST_CLASSES = 64
IMAGE_AXES = frozenset("CHW")
SHIFTED = -0.25
WHOLE = ("int", "uint")


@dataclass(frozen=True)
class Pair:
    """A training split and an evaluation split that hold the same field."""

    names: tuple[str, str]
    train: Split
    held_out: Split
    field: str

    def finding(
        self, what: str, seen: tuple[str, str], message: str,
        step: Step | None = None, sample: SampleId | None = None,
    ) -> Finding:  # fmt: skip
        """Say what differs, at the evaluation split's step or loader."""
        loader = self.held_out.loader
        place = (loader.file, loader.line) if loader else (None, None)
        if step is None:
            way = next((w for w in ways.ways(self.held_out) if self.field in w.fields), None)
            place = ways.returned(way) if ways.returned(way)[1] else place
        file, line = (step.file, step.line) if step else place
        evidence = {
            "differs": what,
            "splits": list(self.names),
            self.names[0]: seen[0],
            self.names[1]: seen[1],
            **(ways.step_facts(step) if step else {}),
        }
        stage = ways.stage(step) if step else None
        where = Where(self.names[1] or None, self.field, stage, sample, file, line)
        return Finding(message, where, evidence, severity=WARNING)


def pairs(obs: Observation) -> Iterator[Pair]:
    """Pair each evaluation split with the first training split, field by field."""
    training = [(n, s) for n, s in obs.splits.items() if s.role == TRAIN and s.batches]
    for name, split in obs.splits.items():
        if split.role != EVAL or not split.batches or not training:
            continue
        first, train = training[0]
        for field in split.fields:
            if field in train.fields:
                yield Pair((first, name), train, split, field)


def comparable(obs: Observation) -> bool:
    """Tell whether there are a training and an evaluation split to compare."""
    return next(pairs(obs), None) is not None


def findings(obs: Observation) -> Iterator[Finding]:
    """Yield what differs between the splits: one finding a field and kind of difference."""
    for pair in pairs(obs):
        for check in (_statistics, _layout, _dtype, _classes):
            found = check(pair)
            if found is not None:
                yield found


def _same_collate(pair: Pair) -> bool:
    one, other = pair.train.loader, pair.held_out.loader
    return one is not None and other is not None and one.collate == other.collate


def _statistics(pair: Pair) -> Finding | None:
    one, other = (normalising.of_split(s, pair.field) for s in (pair.train, pair.held_out))
    if one is not None and other is not None:
        if normalising.same(one[1], other[1]):
            return None
        return _normalised_otherwise(pair, one[1], other[1], other[0])
    totals = [normalising.total(split, pair.field) for split in (pair.train, pair.held_out)]
    first, second = totals
    if first is not None and second is not None:
        if first.raw != second.raw or len(first.scale) != len(second.scale):
            return None
        figures = first.figures(), second.figures()
        if normalising.same(*figures) or not _same_collate(pair):
            return None
        return _normalised_otherwise(pair, *figures, second.step)
    return _normalised_once(pair, (one, other), (first, second))


def _normalised_otherwise(
    pair: Pair, one: normalising.Statistics, other: normalising.Statistics, step: Step
) -> Finding:
    told = normalising.told(one), normalising.told(other)
    message = (
        f"{named(pair.field)} is normalised with {told[1]} in split {pair.names[1]} "
        f"({ways.stage(step)}{ways.at(step)}), with {told[0]} in split {pair.names[0]}"
    )
    return pair.finding("normalisation", told, message, step)


def _normalised_once(
    pair: Pair,
    named_: tuple[tuple[Step, normalising.Statistics] | None, ...],
    totals: tuple[normalising.Affine | None, ...],
) -> Finding | None:
    """Fire where one split is normalised and nothing normalises the other, as its values show."""
    done = [bool(a or b) for a, b in zip(named_, totals, strict=True)]
    if done[0] == done[1] or not _same_collate(pair):
        return None
    with_, without = (pair.train, pair.held_out) if done[0] else (pair.held_out, pair.train)
    low, bare_low = with_.fields[pair.field].low, without.fields[pair.field].low
    if low is None or bare_low is None or low > SHIFTED or bare_low < 0:
        return None
    names = pair.names if done[0] else pair.names[::-1]
    if not _is_float(without, pair.field) or not ways.traced_fields(without):
        return None
    at = 0 if done[0] else 1
    figures = named_[at]
    affine = totals[at]
    statistics = figures[1] if figures else affine.figures() if affine else ((), ())
    told = normalising.told(statistics)
    seen = (told, "not normalised") if done[0] else ("not normalised", told)
    values = without.fields[pair.field]
    message = (
        f"{named(pair.field)} is normalised with {told} in split {names[0]} and not at all in "
        f"split {names[1]} ({number(values.low)}..{number(values.high)})"
    )
    return pair.finding("normalisation", seen, message)


def _is_float(split: Split, field: str) -> bool:
    dtypes = ways.dtypes(split, field)
    return bool(dtypes) and all("float" in dtype for dtype in dtypes)


def _layout(pair: Pair) -> Finding | None:
    one, other = (ways.layout(split, pair.field) for split in (pair.train, pair.held_out))
    if not one or not other or one == other or set(one) != set(other) or not _same_collate(pair):
        return None
    step, _ = ways.last_change(pair.held_out, pair.field, "layout")
    message = (
        f"{named(pair.field)} is {other} in split {pair.names[1]} and {one} in split "
        f"{pair.names[0]}"
    )
    return pair.finding("layout", (one, other), message, step)


def _dtype(pair: Pair) -> Finding | None:
    """Compare images only: labels that MixUp made soft are of another dtype by design."""
    layouts = [ways.layout(split, pair.field) for split in (pair.train, pair.held_out)]
    if any(not set(layout) >= IMAGE_AXES for layout in layouts) or not _same_collate(pair):
        return None
    one, other = (ways.dtypes(split, pair.field) for split in (pair.train, pair.held_out))
    if len(one) != 1 or len(other) != 1 or one == other or not {"uint8", "float64"} & (one | other):
        return None
    step, _ = ways.last_change(pair.held_out, pair.field, "dtype")
    seen = joined(one), joined(other)
    message = (
        f"{named(pair.field)} is {seen[1]} in split {pair.names[1]} and {seen[0]} in split "
        f"{pair.names[0]}"
    )
    return pair.finding("dtype", seen, message, step)


def _classes(pair: Pair) -> Finding | None:
    train, held_out = (_labels(split, pair.field) for split in (pair.train, pair.held_out))
    if not train or not held_out or not _read_whole(pair.train):
        return None
    shown = tuple(_listed(sorted(values)) for values in (train, held_out))
    seen = (shown[0], shown[1])
    offset = min(held_out) - min(train)
    if offset in (1, -1) and max(held_out) - max(train) == offset and len(train) > 1:
        message = (
            f"{named(pair.field)} counts from {number(min(held_out))} in split {pair.names[1]} "
            f"({seen[1]}) and from {number(min(train))} in split {pair.names[0]} ({seen[0]})"
        )
        return pair.finding("label offset", seen, message)
    extra = sorted(set(held_out) - set(train))
    if not extra or not set(held_out) & set(train):
        return None
    sample = next(iter(held_out[extra[0]]), None)
    at = "" if sample is None else f" (sample {sample})"
    message = (
        f"{named(pair.field)} of split {pair.names[1]} holds {_listed(extra)}{at}, which split "
        f"{pair.names[0]} never has: it has {seen[0]}"
    )
    return pair.finding("classes", seen, message, sample=sample)


def _labels(split: Split, field: str) -> dict[float, tuple[SampleId, ...]]:
    """Return the class numbers of a field of one whole number a sample; empty for other fields."""
    seen = split.fields[field]
    if REST in seen.values or not _is_scalar(seen) or not kind(split, field).sure("label"):
        return {}
    values = distinct(seen)
    dense = values and min(values) >= 0 and max(values) < MOST_CLASSES
    return {k: v for k, v in values.items() if k not in _ignored(split, field)} if dense else {}


def _is_scalar(seen: Field) -> bool:
    shapes = set(seen.shapes) - {"scalar", "1"}
    whole = all(dtype.startswith(WHOLE) for dtype in seen.dtypes) and not set(seen.types) - {
        "int", "Tensor", "ndarray", "int64", "int32",
    }  # fmt: skip
    return not shapes and whole


def _ignored(split: Split, field: str) -> set[float]:
    given = ways.expected(split, field).get("ignore_index")
    listed = given if isinstance(given, list) else [] if given is None else [given]
    return {float(value) for value in listed}


def _read_whole(split: Split) -> bool:
    """Tell whether an epoch was read to its end, so that a class that is missing is missing."""
    return bool(split.finished_epochs) and (split.of is None or split.samples >= split.of)


def _listed(values: list[float]) -> str:
    shown = joined(number(value) for value in values[:MOST_SHOWN])
    return shown if len(values) <= MOST_SHOWN else f"{shown}, ... {number(values[-1])}"
