"""DLC105: fields of one sample that belong together and no longer fit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dlcheck.findings import ERROR, WARNING, Finding, NotApplicable, Where, rule
from dlcheck.observation import Journey, Observation, SampleId, Split, State, Step
from dlcheck.rules import ways
from dlcheck.rules.words import joined, named

Size = tuple[int, int]

PLANES = 3
SMALLEST = 16
LARGEST_STRIDE = 64
MASK_KINDS = frozenset({"mask"})
GRIDS = frozenset({"mask", "image", "target", "other", ""})
MASK_NAME = re.compile(r"mask|seg|annot|label|target|gt|trimap|alpha|matte", re.IGNORECASE)
IMAGE_NAME = re.compile(r"im(?:age|g)|photo|picture|rgb|input|pixel|^x$|^0$", re.IGNORECASE)
# Random stages that move pixels; those that change colours alone leave a mask in place.
MOVES = re.compile(
    r"Flip|Rotat|Crop|Affine|Perspective|Elastic|Transpose|Zoom|Distort|Shift.*Scale|D4|Resize"
)
RANDOM = re.compile(r"Rand|D4|Flip|ShiftScaleRotate|Elastic|RandomRotate90")
# What code says that moves pixels in a way of its own.
MOVED = re.compile(r"flip|rot|crop|warp|\[::|affine|transform|augment|shift", re.IGNORECASE)
ONE_ARGUMENT = re.compile(r"\w+\s*=\s*[\w.]+\((\w+)\)$")
# Targets of networks without padding are smaller than the image, and centred.
CENTRED = re.compile(r"pad|cent[er]{2}|valid", re.IGNORECASE)


@rule(
    "DLC105",
    severity=ERROR,
    needs="samples",
    title="Two fields that belong together no longer fit",
    why="A mask that was not resized, cropped or flipped with its image labels the wrong pixels; "
    "unequal sizes fail in the loss at best, an unshared flip fails nowhere.",
    fix="Put both through the same stage in one call (torchvision v2 with tv_tensors, "
    "albumentations with image= and mask=, MONAI with keys=), the mask with nearest "
    "interpolation.",
)
def misaligned_pair(obs: Observation) -> Iterator[Finding]:
    """Fire where an image and its mask or its other view differ in size or in a random stage.

    An error where the config says `pairs_with`, else a warning. A constant whole ratio is left
    alone (super-resolution, targets at a stride), unless a mask is declared.
    """
    findings, pairs = [], 0
    for name, split in obs.splits.items():
        for pair in _pairs(split):
            pairs += 1
            finding = _unequal_finding(name, split, pair) or _apart_finding(name, split, pair)
            if finding:
                findings.append(finding)
    if not pairs:
        raise NotApplicable("no two fields are declared or seen to belong together")
    yield from findings


@dataclass(frozen=True)
class _Pair:
    """An image and the field that goes with it. `kind` is empty where nobody said."""

    image: str
    other: str
    kind: str
    declared: bool


def _pairs(split: Split) -> list[_Pair]:
    fields = split.given.get("fields")
    told: list[_Pair] = []
    for name, said in fields.items() if isinstance(fields, Mapping) else ():
        partner = said.get("pairs_with") if isinstance(said, Mapping) else None
        kind = str(said.get("kind", "")) if isinstance(said, Mapping) else ""
        partners = [partner] if isinstance(partner, str | int) else partner or ()
        if kind in GRIDS:
            told += [_Pair(str(one), str(name), kind, declared=True) for one in partners]
    return told or _guessed(split)


def _guessed(split: Split) -> list[_Pair]:
    """Pair the only image of a sample with the fields that look like its masks."""
    images = [field for field in split.fields if _is_image(split, field)]
    named_so = [field for field in images if IMAGE_NAME.search(field.rpartition(".")[2])]
    images = images if len(images) == 1 else named_so
    if len(images) != 1:
        return []
    masks = [field for field in split.fields if _is_mask(split, field) and field != images[0]]
    return [_Pair(images[0], mask, "", declared=False) for mask in masks]


def _is_image(split: Split, field: str) -> bool:
    shapes = ways.sample_shapes(split, field)
    pixels = all(d == "uint8" or "float" in d for d in ways.dtypes(split, field))
    known = ways.layout(split, field) in {"CHW", "HWC", ""}
    return pixels and known and bool(shapes) and all(map(_like_an_image, shapes))


def _like_an_image(shape: tuple[int, ...]) -> bool:
    ends = len(shape) == PLANES and (shape[0] in {1, 3, 4} or shape[2] in {1, 3, 4})
    return ends and sorted(shape)[1] >= SMALLEST


def _is_mask(split: Split, field: str) -> bool:
    """Tell a class or bool map by dtype, and a uint8 one by its name as well."""
    kinds = ways.dtypes(split, field)
    whole = bool(kinds) and all("int" in d or d == "bool" for d in kinds)
    # uint8 with a leading axis of one may be a grey image: only the name tells.
    sure = "uint8" not in kinds or bool(MASK_NAME.search(field))
    shapes = ways.sample_shapes(split, field)
    return whole and sure and bool(shapes) and all(map(_like_a_mask, shapes))


def _like_a_mask(shape: tuple[int, ...]) -> bool:
    plane = shape[1:] if len(shape) == PLANES and shape[0] == 1 else shape
    return len(plane) == PLANES - 1 and min(plane) >= SMALLEST


def _sizes(split: Split, pair: _Pair) -> list[tuple[Size, Size, SampleId | None]]:
    """Return sizes of both fields in one sample, from journeys, else where each has one size."""
    found: list[tuple[Size, Size, SampleId | None]] = []
    for journey in ways.ways(split):
        image, other = (journey.fields.get(field) for field in (pair.image, pair.other))
        sizes = (image and ways.size(image), other and ways.size(other))
        if sizes[0] and sizes[1]:
            found.append((sizes[0], sizes[1], journey.sample))
    if found:
        return found
    image_sizes, other_sizes = (
        {ways.size(State("", shape=shape)) for shape in ways.sample_shapes(split, field)}
        for field in (pair.image, pair.other)
    )
    if len(image_sizes) == len(other_sizes) == 1:
        one, two = image_sizes.pop(), other_sizes.pop()
        return [(one, two, None)] if one and two else []
    return []


def _unequal_finding(name: str, split: Split, pair: _Pair) -> Finding | None:
    sizes = _sizes(split, pair)
    wrong = [found for found in sizes if not _fit(found[0], found[1], pair)]
    strides = {_stride(image, other) for image, other, _ in sizes}
    # A ratio that varies from sample to sample is no stride.
    if not wrong and len(strides) > 1 and 1 in strides:
        wrong = [found for found in sizes if found[0] != found[1]]
    if not wrong:
        return None
    image, other, sample = wrong[0]
    journey = ways.way_of(split, sample) if sample is not None else None
    step = _treated_apart(journey, pair)
    if step and not pair.declared and CENTRED.search(f"{step.stage} {step.text}"):
        return None
    file, line = _place(split, journey, step)
    evidence = {
        "fields": [pair.image, pair.other],
        "sizes": {pair.image: list(image), pair.other: list(other)},
        "declared": pair.declared,
        "samples": [found[2] for found in wrong if found[2] is not None][:PLANES],
        **(ways.step_facts(step) if step else {}),
    }
    stage = ways.stage(step) if step else None
    where = Where(name or None, pair.other, stage, sample, file, line)
    after = f"; {stage}{ways.at(step)} changed one and not the other" if step else ""
    message = (
        f"{named(pair.image)} is {image[0]}x{image[1]} and {named(pair.other)} is "
        f"{other[0]}x{other[1]}{after}"
    )
    return Finding(message, where, evidence, severity=ERROR if pair.declared else WARNING)


def _fit(image: Size, other: Size, pair: _Pair) -> bool:
    if image == other:
        return True
    return not (pair.declared and pair.kind in MASK_KINDS) and _stride(image, other) > 0


def _stride(image: Size, other: Size) -> int:
    """Return the whole ratio of two sizes, rounded up or down at the border; 0 if there is none."""
    big, small = max(image, other), min(image, other)
    if min(small) < 1:
        return 0
    pairs = list(zip(big, small, strict=True))
    for stride in range(1, LARGEST_STRIDE + 1):
        if all(s in {math.ceil(b / stride), b // stride} for b, s in pairs):
            return stride
    return 0


def _treated_apart(journey: Journey | None, pair: _Pair) -> Step | None:
    """Find the first step that gave one of the two a size that the other never had."""
    if journey is None:
        return None
    chains = [ways.chain(journey, field) for field in (pair.image, pair.other)]
    ever = [_ever(steps, journey.fields.get(field)) for steps, field in
            zip(chains, (pair.image, pair.other), strict=True)]  # fmt: skip
    for step in journey.steps:
        for steps, had in ((chains[0], ever[1]), (chains[1], ever[0])):
            if step in steps and _resized(step) and ways.size(step.after) not in had:
                return step
    return next((s for steps in chains for s in reversed(steps) if _resized(s)), None)


def _ever(steps: list[Step], final: State | None) -> set[Size | None]:
    """Return every size that a field had on its way."""
    known = {ways.size(state) for step in steps for state in ways.states(step)}
    return known | ({ways.size(final)} if final else set())


def _resized(step: Step) -> bool:
    if step.before is None:
        return False
    before, after = ways.size(step.before), ways.size(step.after)
    return before is not None and after is not None and before != after


def _place(split: Split, journey: Journey | None, step: Step | None) -> ways.Place:
    if step:
        return step.file, step.line
    file, line = ways.returned(journey or next(iter(ways.ways(split)), None))
    if line is not None or not split.loader:
        return file, line
    return split.loader.file, split.loader.line


def _apart_finding(name: str, split: Split, pair: _Pair) -> Finding | None:
    """Find a random stage that moved the image's pixels while nothing ever moved the mask's."""
    if not pair.declared and pair.kind not in MASK_KINDS | {""}:
        return None
    found = [(j, step) for j in ways.ways(split) if (step := _moved_alone(j, pair))]
    if not found or len(found) < sum(pair.other in j.fields for j in ways.ways(split)):
        return None
    journey, step = found[0]
    where = Where(
        name or None, pair.other, ways.stage(step), journey.sample, step.file, step.line
    )  # fmt: skip
    size = ways.size(journey.fields[pair.other])
    evidence = {
        "fields": [pair.image, pair.other],
        "size": list(size or ()),
        "samples": [j.sample for j, _ in found],
        "stages_of_the_other": joined(s.stage for s in ways.chain(journey, pair.other)),
        **ways.step_facts(step),
    }
    message = (
        f"{ways.stage(step)} moves the pixels of {named(pair.image)} at random and no stage moves "
        f"those of {named(pair.other)} with them"
    )
    return Finding(message, where, evidence, severity=ERROR if pair.declared else WARNING)


def _moved_alone(journey: Journey, pair: _Pair) -> Step | None:
    """Return the image's random stage, where the other field provably had no part in it.

    A flip or rotation need not show in a mask's steps, so a mask that went through a container,
    or through code that speaks of moving, is given the benefit of the doubt.
    """
    image, other = ways.chain(journey, pair.image), ways.chain(journey, pair.other)
    if not other or any(map(_may_have_moved, other)):
        return None
    order = {id(step): number for number, step in enumerate(journey.steps)}
    for place, step in enumerate(image):
        random = MOVES.search(step.stage) and RANDOM.search(step.stage)
        read_later = other[0].before is None and order[id(other[0])] > order[id(step)]
        if random and (read_later or _takes_alone(step, image[:place])):
            return step
    return None


def _may_have_moved(step: Step) -> bool:
    text = f"{step.stage} {step.text} {step.function}"
    return bool(step.container or MOVES.search(step.stage) or MOVED.search(text) or _resized(step))


def _takes_alone(step: Step, earlier: list[Step]) -> bool:
    """Tell a call with one argument, the image itself: `img = self.augment(img)`."""
    call = ONE_ARGUMENT.match(step.text.strip())
    return bool(call) and any(call[1] == one.variable for one in earlier if call)
