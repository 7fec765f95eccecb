"""What each field is: image, mask, label, boxes, ... with a confidence, or `unknown`.

What the config declares counts first, then types that say it themselves, then names, then
structure, dtype and values. A field about which these disagree is unknown rather than wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dlcheck.observation import Field, Split, shape_of
from dlcheck.rules import ways

Shape = tuple[int, ...]

UNKNOWN = "unknown"
SURE, LIKELY, GUESS = 0.9, 0.75, 0.6
PICTURES = frozenset({"image", "video", "volume"})
INPUTS = PICTURES | {"audio", "tokens"}
TARGETS = frozenset({"label", "mask", "boxes", "keypoints", "target"})
CHANNELS = frozenset({1, 3, 4})
INTEGERS = frozenset(
    {"int", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)
CLASSES = frozenset({"int", "bool", "int8", "int16", "int32", "int64", "uint8"})
FEW_VALUES = 64
SMALL = 5
MANY = 16
MOST_CLASSES_READ = 2_000
SPATIAL, PLANES, BLOCK = 2, 3, 4
CORNERS = 4
MOST_CHANNELS = 512
LONG = 400
BY_TYPE = {
    "BoundingBoxes": "boxes", "KeyPoints": "keypoints", "Mask": "mask", "Video": "video",
    "Image": "image",
}  # fmt: skip
# Words of a field's own name; the shape has a say before the name does.
NAMES = (
    ("boxes", r"box|boxes|bbox|bboxes|rois?"),
    ("keypoints", r"keypoints?|kpts?|kps|landmarks?|joints?|pose"),
    ("target", r"depth|disparity|disp|flow|heatmaps?|hm|density|normals?|alpha|saliency"),
    ("other", (
        r"ids?|idx|index|indices|image_?ids?|paths?|file_?names?|names?|lengths?|len|sizes?|"
        r"orig_?size|heights?|widths?|h|w|counts?|num_?\w+|n_\w+|age|year|month|day|score|"
        r"weights?|iscrowd|area|time|timestamps?|difficult|meta|lam|epoch|sample_?rate|rate|fps"
    )),
    ("other", (
        r"points?|pc|cloud|xyz|pos|edge_?index|features?|feats?|attention_?mask|padding_?mask"
        r"|key_?padding_?mask|valid|vis|visible|visibility"
    )),
    ("mask", r"masks?|seg|segm|segmentations?|semantic|labelmap|sem_?seg"),
    ("tokens", r"tokens?|input_?ids|token_?ids|source|src|tgt|text|captions?|src_?tokens|question"),
    ("audio", r"audio|waves?|waveforms?|speech|sound|mels?|logmel|spectrograms?|spec|fbank"),
    ("video", r"videos?|clips?|frames?"),
    ("volume", r"volumes?|vol|ct|mri|scans?"),
    ("image", (
        r"images?|imgs?|pixels|pixel_?values|photos?|pictures?|left|right|rgb|input|inputs|x|lr|hr"
        r"|lq|gt|anchor|positive|negative|query|view"
    )),
    ("label", (
        r"labels?|targets?|class|classes|cls|category|categories|category_?ids?|y|gt_?classes"
        r"|gt_?labels|labs?|fine|coarse"
    )),
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A field's kind, how sure that is (0 to 1), and why."""

    name: str = UNKNOWN
    confidence: float = 0.0
    reason: str = ""

    def sure(self, *names: str, at_least: float = GUESS) -> bool:
        """Tell whether the field is one of these kinds, with that confidence."""
        return self.name in names and self.confidence >= at_least


def kinds(split: Split) -> dict[str, Kind]:
    """Return the kind of each leaf that samples had, or batches where no sample was seen."""
    seen = split.fields or split.batch_fields
    return {field: kind(split, field) for field in seen if not is_container(seen[field])}


def kind(split: Split, field: str) -> Kind:
    """Return the kind of one field."""
    seen = split.fields.get(field) or split.batch_fields.get(field)
    said = str(ways.declared(split, field).get("kind", ""))
    if said:
        return Kind(said, 1.0, "declared in fields")
    if seen is None or is_container(seen):
        return Kind()
    own = _by_type(split, field, seen)
    if own is not None:
        return own
    if "classes" in ways.expected(split, field):
        rank = max(map(len, _shapes(split, field, seen)), default=0)
        name = "mask" if rank >= SPATIAL else "label"
        return Kind(name, 0.95, "expect gives its classes")
    return next(
        (found for found in _by_name(split, field, seen) if found is not None),
        _by_look(split, field, seen),
    )


def is_container(seen: Field) -> bool:
    """Tell whether a field holds other fields."""
    return all(_is_container(name) for name in seen.types)


def _is_container(name: str) -> bool:
    return name in ("dict", "tuple", "list") or name.startswith(("namedtuple:", "dataclass:"))


def is_target(split: Split, field: str) -> bool:
    """Tell targets from inputs: by kind, else by the place in the sample."""
    found = kind(split, field)
    if found.confidence >= GUESS and found.name in TARGETS:
        return True
    if found.confidence >= GUESS and found.name in INPUTS:
        return False
    first = next((leaf for leaf in split.fields if not is_container(split.fields[leaf])), "")
    return field != first


def _shapes(split: Split, field: str, seen: Field) -> list[Shape]:
    if field in split.fields:
        return ways.sample_shapes(split, field)
    # Of a batch without samples the first axis is the batch.
    return [shape[1:] for text in seen.shapes if (shape := shape_of(text))]


def _by_type(split: Split, field: str, seen: Field) -> Kind | None:
    for name, found in BY_TYPE.items():
        if name in seen.types:
            # A transform may leave the class of the image on what it made of it.
            sure = LIKELY if name == "Image" else 1.0
            if name == "Image" and not _channels(split, field, _shapes(split, field, seen)):
                return None
            return Kind(found, sure, f"its type is {name}")
    if "PIL.Image" in seen.types:
        return Kind("image", LIKELY, "a PIL image")
    texts = {"str", "bytes", "NoneType", "list[str]", "tuple[str]"}
    if set(seen.types) <= texts or any("Path" in name for name in seen.types):
        return Kind("other", SURE, "text")
    return None


def _by_name(split: Split, field: str, seen: Field) -> Iterator[Kind | None]:
    last = next((part for part in reversed(field.split(".")) if not part.isdigit()), "").lower()
    if not last:
        return
    shapes = _shapes(split, field, seen)
    # The whole name counts before its parts: input_ids are no ids.
    for words in ({last, last.rstrip("0123456789_")}, set(re.split(r"[_\-\s]+", last))):
        for name, pattern in NAMES:
            if any(re.fullmatch(pattern, word) for word in words):
                found = _named(name, shapes, seen)
                if found:
                    yield Kind(found, _named_confidence(found, name), f"named {last}")


def _named_confidence(found: str, name: str) -> float:
    return 0.85 if found == name else LIKELY


def _named(name: str, shapes: list[Shape], seen: Field) -> str:
    """Return what a field of that name can be in view of its shapes; empty when nothing."""
    ranks = {len(shape) for shape in shapes}
    rank = max(ranks, default=0)
    whole = is_whole(seen)
    fits = {
        "boxes": rank in (1, SPATIAL) and all(shape[-1] in (CORNERS, SMALL) for shape in shapes),
        "keypoints": rank in (SPATIAL, PLANES) and all(s[-1] in (2, 3, 4) for s in shapes),
        "target": rank >= 1,
        "other": True,
        "mask": rank >= SPATIAL,
        "tokens": rank == 1 and whole,
        "audio": 1 <= rank <= PLANES and not whole,
        "video": rank == BLOCK,
        "volume": rank in (PLANES, BLOCK),
        "image": rank in (SPATIAL, PLANES),
    }
    if name == "image" and rank == BLOCK:
        return "volume" if all(shape[0] in CHANNELS for shape in shapes) else ""
    if name == "label" and rank == 1 and whole and not _few(seen):
        return "tokens"
    if name != "label":
        return name if fits[name] and (shapes or name == "other") else ""
    if rank >= SPATIAL:
        return "mask" if whole and _few(seen) else "target"
    return "label" if whole or "bool" in seen.dtypes or _hot(seen) else "target"


def is_whole(seen: Field) -> bool:
    """Tell a field of integers."""
    names = set(seen.dtypes) or set(seen.types)
    return bool(names) and all(n in INTEGERS or n in ("list[int]", "tuple[int]") for n in names)


def _few(seen: Field) -> bool:
    """Tell integer fields with few different values."""
    if seen.low is None or seen.high is None:
        return False
    known = set(seen.values) - {"..."}
    return 0 < len(known) <= FEW_VALUES and "..." not in seen.values


def _hot(seen: Field) -> bool:
    """Tell float vectors of 0 and 1: several classes at once."""
    return (seen.low, seen.high) in ((0.0, 1.0), (0.0, 0.0), (1.0, 1.0)) and not _scalar(seen)


def _scalar(seen: Field) -> bool:
    return all(text == "scalar" for text in seen.shapes)


def _by_look(split: Split, field: str, seen: Field) -> Kind:
    shapes = _shapes(split, field, seen)
    ranks = {len(shape) for shape in shapes}
    if _scalar(seen):
        return _scalar_kind(split, field, seen)
    if ranks == {1}:
        return _line_kind(seen, shapes)
    if ranks == {SPATIAL}:
        return _plane_kind(split, field, seen, shapes)
    if ranks == {PLANES}:
        return _stack_kind(split, field, seen, shapes)
    return _block_kind(split, field, shapes) if ranks == {BLOCK} else Kind()


def _block_kind(split: Split, field: str, shapes: list[Shape]) -> Kind:
    layout = ways.layout(split, field)
    if layout in ("TCHW", "THWC", "CTHW") and {s[layout.index("C")] for s in shapes} == {PLANES}:
        return Kind("video", LIKELY, f"its axes are {layout}")
    return Kind()


def _scalar_kind(split: Split, field: str, seen: Field) -> Kind:
    names = set(seen.dtypes) or set(seen.types)
    if names <= {"float", "float32", "float64"}:
        return Kind("target", GUESS, "a number a sample")
    if not names <= CLASSES or seen.low is None or not seen.values:
        return Kind()
    known = [tally.n for key, tally in seen.values.items() if key != "..."]
    drawn_often = sum(known) >= 2 * len(known) * max(1, split.epochs)
    if "..." in seen.values or not drawn_often:
        return Kind("other", 0.3, "an integer a sample, nearly all different")
    if seen.low not in (-100.0, -1.0, 0.0, 1.0):
        return Kind("other", 0.3, "integers that do not begin at 0")
    last = len(split.fields) > 1 and field == list(split.fields)[-1]
    return Kind("label", LIKELY if last else GUESS, f"{len(known)} integers, again and again")


def _line_kind(seen: Field, shapes: list[Shape]) -> Kind:
    if is_whole(seen):
        if max(shape[0] for shape in shapes) >= SMALL and not _few(seen):
            return Kind("tokens", GUESS, "a row of many different integers")
        return Kind()
    if _hot(seen) and "bool" not in seen.dtypes:
        return Kind("label", GUESS, "a row of 0 and 1")
    if min(shape[0] for shape in shapes) >= LONG:
        return Kind("audio", 0.4, "a long row of numbers")
    return Kind("other", 0.4, "a row of numbers")


def _plane_kind(split: Split, field: str, seen: Field, shapes: list[Shape]) -> Kind:
    smallest = min(min(shape) for shape in shapes)
    if is_whole(seen) and _few(seen) and smallest >= MANY:
        return Kind("mask", LIKELY, "a plane of few different integers")
    if any(shape[1] in (2, 3, 6) for shape in shapes) and smallest < MANY:
        return Kind("other", 0.5, "rows of coordinates")
    if ways.layout(split, field) == "HW" and smallest >= MANY:
        if is_first(split, field):
            return Kind("image", GUESS, "a plane whose neighbours are alike")
        return Kind("target", 0.5, "a plane beside the input")
    return Kind()


def is_first(split: Split, field: str) -> bool:
    """Tell whether a field is the sample's first leaf."""
    return field == next((f for f in split.fields if not is_container(split.fields[f])), "")


def _stack_kind(split: Split, field: str, seen: Field, shapes: list[Shape]) -> Kind:
    count = _channels(split, field, shapes)
    if count is None:
        return Kind()
    few = is_whole(seen) and _few(seen) and count == 1
    if few and len(seen.values) <= FEW_VALUES // 2 and not is_first(split, field):
        return Kind("mask", LIKELY, "a plane of few different integers")
    if min(min(_without(shape, count)) for shape in shapes) < SMALL:
        return Kind("image", 0.3, "three axes, very small")
    known = ways.layout(split, field)
    if not is_first(split, field) and not _like_first(split, field, shapes):
        return Kind("target", 0.4, "planes beside the input")
    sure = LIKELY if count in CHANNELS and known else GUESS
    if count not in CHANNELS and not known:
        return Kind("image", 0.4, f"{count} planes")
    return Kind("image", sure, f"{count} channels{f', {known}' if known else ''}")


def _without(shape: Shape, count: int) -> Shape:
    """Return the shape without its channel axis."""
    return shape[1:] if shape[0] == count else shape[:-1]


def _like_first(split: Split, field: str, shapes: list[Shape]) -> bool:
    """Tell pairs and further views: as many channels as the sample's first leaf has."""
    first = next((f for f in split.fields if not is_container(split.fields[f])), "")
    others = _shapes(split, first, split.fields[first]) if first else []
    return bool(others) and _channels(split, first, others) == _channels(split, field, shapes)


def _channels(split: Split, field: str, shapes: list[Shape]) -> int | None:
    """Return the channel count of an image's shapes; None where the axes do not tell."""
    known = ways.layout(split, field)
    if not shapes or {len(shape) for shape in shapes} != {PLANES}:
        return 1 if shapes and {len(shape) for shape in shapes} == {SPATIAL} else None
    if "C" in known and len(known) == PLANES:
        count = shapes[0][known.index("C")]
        if count in CHANNELS or not CHANNELS & {shapes[0][0], shapes[0][2]}:
            return count
    for axis in (0, 2):
        counts = {shape[axis] for shape in shapes}
        others = [size for shape in shapes for i, size in enumerate(shape) if i != axis]
        if counts <= CHANNELS and min(others) >= SMALL:
            return counts.pop()
    counts = {shape[0] for shape in shapes}
    small = len(counts) == 1 and max(counts) <= MOST_CHANNELS
    return counts.pop() if small and all(s[0] < min(s[1:]) for s in shapes) else None
