"""DLC306: labels that the loss cannot look up, and batches of one class."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlcheck.findings import ERROR, WARNING, Finding, NotApplicable, Where, rule
from dlcheck.observation import Field, Journey, Observation, SampleId, Split
from dlcheck.rules import ways
from dlcheck.rules.dtypes import loss_name
from dlcheck.rules.kinds import LIKELY, is_container, kind
from dlcheck.rules.words import bare, joined, named

CONVENTIONS = frozenset({-100, 255})
MAYBE_IGNORED = -1
FEWEST_BATCHES = 4
FEWEST_IN_BATCH = 2
MOSTLY = 0.8
BY_CHANCE = 0.3
SOME = 0.1
IN_ORDER = ("SequentialSampler",)
MOST_SHOWN = 8
RANDOM = re.compile(r"Random|Jitter|AutoAugment|RandAugment|TrivialAugment|MixUp|CutMix|Erasing")
COUNTS = ("num_classes", "n_classes", "num_labels", "classes", "nclass")
# Detection and segmentation models of these count the background as a class.
ONE_TARGET = frozenset({"label", "mask"})


@rule(
    "DLC306",
    severity=ERROR,
    needs="samples",
    title="Labels outside the classes, or batches of one class",
    why="cross_entropy reads a label as an index: out of range it stops with an assert on the "
    "accelerator that names no sample. Batches of one class make training forget the others.",
    fix="Map the labels to 0..classes-1 where the index is built, or declare the ignore index "
    "(`expect: {label: {classes: 5, ignore_index: 255}}`); for sorted data pass shuffle=True.",
)
def label_range(obs: Observation) -> Iterator[Finding]:
    """Fire on labels below 0 or past the classes that `expect` or the model give.

    The ignore index is none. In training without shuffle, also on batch after batch of one class.
    """
    judged = False
    for name, split in obs.splits.items():
        for field, seen in split.fields.items():
            found = kind(split, field)
            if is_container(seen) or not found.sure(*ONE_TARGET):
                continue
            judged = True
            bad = _outside(split, field, seen)
            if bad is not None:
                yield _range_finding(name, split, field, bad)
            elif _sorted(name, split, seen) and found.sure("label"):
                yield _order_finding(name, split, field, seen)
    if not judged:
        reason = "no field is known to hold class labels"
        raise NotApplicable(reason)


@dataclass(frozen=True)
class Bad:
    """Values that are no class. `classes` is 0 where nobody says how many there are."""

    values: dict[int, int]
    samples: tuple[SampleId, ...]
    classes: int
    source: str
    one_based: bool = False


def _outside(split: Split, field: str, seen: Field) -> Bad | None:
    if seen.low is None or seen.high is None or not _whole(seen):
        return None
    classes, source = _classes(split, field)
    ignored = _ignored(split, field)
    if not classes:
        return _negative(split, field, seen, ignored)
    known = {int(key): tally for key, tally in seen.values.items() if key != "..."}
    values = {value: t.n for value, t in known.items() if not 0 <= value < classes}
    for edge in (int(seen.low), int(seen.high)):
        if not 0 <= edge < classes:
            values.setdefault(edge, 1)
    values = {value: n for value, n in values.items() if value not in ignored}
    if not values:
        return None
    samples = tuple(s for v in sorted(values) if v in known for s in known[v].at)
    one_based = set(values) == {classes} and 0 not in known and bool(known)
    return Bad(dict(sorted(values.items())), samples[:MOST_SHOWN], classes, source, one_based)


def _negative(split: Split, field: str, seen: Field, ignored: frozenset[int]) -> Bad | None:
    """Judge negative labels of which no classes are declared: -1 may mean unlabelled."""
    class_loss = "ross" in loss_name(split) or "NLL" in loss_name(split)
    known = {int(key): tally for key, tally in seen.values.items() if key != "..."}
    values = {value: t.n for value, t in known.items() if value < 0 and value not in ignored}
    if not class_loss:
        values.pop(MAYBE_IGNORED, None)
    sure = kind(split, field).sure(*ONE_TARGET, at_least=LIKELY)
    if not values or not sure or (seen.low or 0) < -MOST_SHOWN:
        return None
    samples = tuple(s for v in sorted(values) for s in known[v].at)
    return Bad(dict(sorted(values.items())), samples[:MOST_SHOWN], 0, "")


def _whole(seen: Field) -> bool:
    names = set(seen.dtypes) or set(seen.types)
    return all("int" in name for name in names)


def _classes(split: Split, field: str) -> tuple[int, str]:
    """Return how many classes are declared, and by what; (0, "") where nobody says."""
    said = ways.expected(split, field).get("classes")
    if isinstance(said, int):
        return said, "expect"
    if isinstance(said, list | tuple | Mapping):
        return len(said), "expect"
    model = split.given.get("model")
    # Features that a model puts out are classes only where the loss says so.
    names = (*COUNTS, "out_features") if "ross" in loss_name(split) else COUNTS
    count = _argument(model, names) if isinstance(model, Mapping) else None
    labels = [f for f, seen in split.fields.items() if not is_container(seen)]
    labels = [f for f in labels if kind(split, f).sure(*ONE_TARGET)]
    if count and count > 1 and labels == [field]:
        return count, f"the model ({bare(str(model.get('_target_', '')))})"  # type: ignore[union-attr]
    return 0, ""


def _argument(model: Mapping[str, Any], names: Sequence[str]) -> int | None:
    inside = model.get("init_args")
    places = [model, inside] if isinstance(inside, Mapping) else [model]
    for place in places:
        for name in names:
            if isinstance(place.get(name), int):
                return int(place[name])
    return None


def _ignored(split: Split, field: str) -> frozenset[int]:
    said = {
        place.get("ignore_index")
        for place in (
            ways.expected(split, field), ways.declared(split, field), split.given.get("loss")
        )
        if isinstance(place, Mapping)
    }  # fmt: skip
    declared = frozenset(int(one) for one in said if isinstance(one, int))
    return declared | CONVENTIONS


def _range_finding(name: str, split: Split, field: str, bad: Bad) -> Finding:
    journey = _way(split, bad.samples)
    step = next(iter(reversed(ways.chain(journey, field))), None) if journey else None
    file, line = (step.file, step.line) if step and step.file else ways.returned(journey)
    if line is None:
        file, line = ways.source(split)
    shown = dict(list(bad.values.items())[:MOST_SHOWN])
    evidence = {
        "values": {str(value): n for value, n in shown.items()},
        "classes": bad.classes or None,
        "declared_by": bad.source,
        "samples": list(bad.samples),
        "range": [split.fields[field].low, split.fields[field].high],
        "one_based": bad.one_based,
    }
    sample = bad.samples[0] if bad.samples else None
    where = Where(name or None, field, None, sample, file, line)
    what = f"{named(field)} holds {joined(shown)}"
    if bad.one_based:
        tail = f"labels run from 1 to {bad.classes}, and {bad.source} gives {bad.classes} classes"
    elif bad.classes:
        tail = f"{bad.source} gives {bad.classes} classes, 0 to {bad.classes - 1}"
    else:
        tail = "a class label below 0 that is no declared ignore index"
    at = f" (e.g. sample {sample})" if sample is not None else ""
    severity = ERROR if bad.classes or loss_name(split) else WARNING
    return Finding(f"{what}{at}: {tail}", where, evidence, severity)


def _way(split: Split, samples: tuple[SampleId, ...]) -> Journey | None:
    drawn = [way for sample in samples if (way := ways.way_of(split, sample))]
    return next(iter(drawn or ways.ways(split)), None)


def _sorted(name: str, split: Split, seen: Field) -> bool:
    """Tell batches of one class, far more than chance gives, in an order that nobody shuffles."""
    loader, runs = split.loader, seen.runs
    if loader is None or loader.kind != "map" or split.role != "train":
        return False
    if loader.sampler not in IN_ORDER or loader.batch_sampler not in (None, "BatchSampler"):
        return False
    if runs.batches < FEWEST_BATCHES or not trains(name, split):
        return False
    shares = _shares(seen)
    if len(shares) < FEWEST_IN_BATCH:
        return False
    size = 1 + runs.pairs / runs.batches
    chance = sum(share**size for share in shares)
    single, same = runs.single / runs.batches, runs.same / max(runs.pairs, 1)
    if chance > BY_CHANCE or size < FEWEST_IN_BATCH:
        return False
    return single >= MOSTLY or (same >= 0.9 and single >= 0.5)  # noqa: PLR2004


def _shares(seen: Field) -> list[float]:
    counts = [tally.n for tally in seen.values.values()]
    return [count / sum(counts) for count in counts]


def trains(name: str, split: Split) -> bool:
    """Tell that a split is seen to train: by its name, loss, step, drop_last or random stages.

    The role alone does not, since it is training where nobody says.
    """
    if "train" in name.lower() or any(split.given.get(key) for key in ("step", "loss")):
        return True
    if split.loader is not None and split.loader.drop_last:
        return True
    steps = [step for journey in ways.ways(split) for step in journey.steps]
    if any(RANDOM.search(step.stage) for step in steps):
        return True
    return redrawn_differently(split)


def redrawn_differently(split: Split) -> bool:
    """Tell that samples came out otherwise in another epoch: more contents than samples."""
    for contents in split.contents.values():
        samples = {sample for ids in contents.seen.values() for sample in ids}
        if len(contents.seen) > len(samples) * (1 + SOME) + 1:
            return True
    return False


def _order_finding(name: str, split: Split, field: str, seen: Field) -> Finding:
    runs, loader = seen.runs, split.loader
    assert loader is not None  # noqa: S101 - _sorted has seen it
    classes = sorted(int(key) for key in seen.values if key != "...")
    evidence = {
        "batches": runs.batches,
        "of_one_class": runs.single,
        "equal_neighbours": round(runs.same / max(runs.pairs, 1), 3),
        "classes": classes[:MOST_SHOWN],
        "by_chance": float(f"{_chance(seen):.2g}"),
        "sampler": loader.sampler,
        "shuffle": False,
    }
    where = Where(
        name or None, field, file=loader.file, line=loader.line, attribute="DataLoader(shuffle)"
    )
    message = (
        f"{runs.single} of {runs.batches} training batches hold one class of {named(field)} each "
        f"({len(classes)} classes in all): {loader.sampler} reads sorted data, without shuffle"
    )
    return Finding(message, where, evidence, WARNING)


def _chance(seen: Field) -> float:
    size = 1 + seen.runs.pairs / max(seen.runs.batches, 1)
    return math.fsum(share**size for share in _shares(seen))
