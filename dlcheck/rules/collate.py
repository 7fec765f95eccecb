"""Why the samples of a batch could not be joined: one cause for each collate failure.

The causes have an order, since one sample can show several: a value that nothing can stack, then
another structure, then another number of annotations, then another shape.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlcheck.observation import Failure, Leaf, SampleId, SampleLeaves, shape_text

UNCOLLATABLE = "uncollatable-type"
STRUCTURE = "structure-varies"
ANNOTATIONS = "ragged-annotations"
SHAPE = "ragged-batch"

# Boxes, points and keypoints are short rows; a spectrogram's or an image's are long.
WIDEST_ROW = 16
WIDEST_POSE = 64

NUMBERS = {"int", "float", "bool"}
TEXTS = {"str", "bytes"}
ARRAYS = {"ndarray", "memmap"}
CONTAINERS = ("dict", "list", "tuple", "namedtuple:", "mapping:", "sequence:")
# Not values but places where the description of a sample stops.
STOPS = {"...", "cycle", "more"}
NO_TENSOR_DTYPES = ("object", "str", "bytes", "structured", "datetime", "timedelta", "void")
NO_TENSOR_NUMBERS = {"float96", "float128", "complex192", "complex256", "longdouble"}
MISSING = "missing"
EMPTY_LIST = "list[]"

_SIZES_DIFFER = re.compile(
    r"equal size|must match|same shape|same size|broadcast|inhomogeneous|size of tensor"
    r"|expected sequence of length|resize storage|same number of dimensions",
    re.IGNORECASE,
)
_AT_ENTRY = re.compile(r"\[([\d, ]*)\] at entry")
_NONE_HURTS = ("TypeError", "AttributeError")
_STRUCTURE_HURTS = ("KeyError", "TypeError", "ValueError", "IndexError", "AttributeError")


@dataclass(frozen=True)
class Cause:
    """What differs, by the slug of the rule that speaks of it.

    `kinds` maps each type, structure or shape met to the samples that had it, in batch order.
    `others` are further fields with the same trouble.
    """

    rule: str
    field: str
    kinds: dict[str, tuple[SampleId, ...]]
    others: tuple[str, ...] = ()


def cause_of(failure: Failure) -> Cause | None:
    """Read the samples of a failed batch; None when they do not explain the failure."""
    samples = failure.samples
    if failure.phase != "collate" or not samples:
        return None
    if failure.detail.get("default_collate"):
        texts = {path for path, leaf in samples[0].leaves.items() if _is_text(leaf)}
        structure = _uncollatable(samples, texts) or _mixed(samples, texts)
        return structure or _annotations(samples) or _shape(samples)
    if _SIZES_DIFFER.search(failure.message):
        return _refused_shapes(failure) or _mixed(samples)
    if failure.exception in _NONE_HURTS and (cause := _some_none(samples)):
        return cause
    cause = _mixed(samples) if failure.exception in _STRUCTURE_HURTS else None
    if cause and failure.exception == "KeyError" and not _is_key(cause.field, failure.message):
        return None
    return cause


def minority(kinds: Mapping[str, Sequence[SampleId]]) -> str:
    """Pick the kind to point at: the rarest; of two equal ones, the later in the batch."""
    fewest = min(len(ids) for ids in kinds.values())
    return [kind for kind, ids in kinds.items() if len(ids) == fewest][-1]


def _is_key(path: str, message: str) -> bool:
    return path.rpartition(".")[2] == message.strip("'\" ")


def _paths(samples: Sequence[SampleLeaves]) -> list[str]:
    """Every path of any sample, the outermost first, else in the order of the samples."""
    seen: dict[str, None] = {}
    for sample in samples:
        seen.update(dict.fromkeys(sample.leaves))
    seen.pop("...", None)
    return sorted(seen, key=lambda path: path.count(".") + 1 if path else 0)


def _parent(path: str) -> str | None:
    return path.rpartition(".")[0] if path else None


def _below(path: str, containers: Collection[str]) -> bool:
    parent = _parent(path)
    while parent is not None:
        if parent in containers:
            return True
        parent = _parent(parent)
    return False


def _is_text(leaf: Leaf) -> bool:
    return leaf.type in TEXTS or (leaf.type == "numpy" and (leaf.dtype or "").startswith("str"))


def _is_number(leaf: Leaf) -> bool:
    return leaf.type in NUMBERS or (leaf.type == "numpy" and _becomes_tensor(leaf.dtype))


def _is_tensor(leaf: Leaf) -> bool:
    """Tell tensors of any subclass and arrays from other objects, whose names have a module."""
    known = leaf.shape is not None and leaf.dtype is not None and leaf.type != "PIL.Image"
    return known and leaf.type != "numpy" and "." not in leaf.type and "[" not in leaf.type


def _becomes_tensor(dtype: str | None) -> bool:
    return dtype not in NO_TENSOR_NUMBERS and not (dtype or "").startswith(NO_TENSOR_DTYPES)


def _items(leaf: Leaf) -> set[str]:
    """Return the types inside a list of plain values: `list[int|str]` -> int, str."""
    if not leaf.type.startswith(("list[", "tuple[")):
        return set()
    return set(leaf.type.partition("[")[2].rstrip("]").split("|"))


def _refused(leaf: Leaf) -> str:
    """Name the type when default_collate refuses it, else an empty string."""
    items = _items(leaf) - NUMBERS - TEXTS
    if items:
        return f"{leaf.type.partition('[')[0]} with {_word(min(items))}"
    if _is_tensor(leaf):
        return "" if _becomes_tensor(leaf.dtype) else f"{leaf.type} of dtype {leaf.dtype}"
    if leaf.type.startswith(CONTAINERS) or leaf.type in STOPS:
        return ""
    if _is_text(leaf) or _is_number(leaf):
        return ""
    if leaf.type == "numpy":
        return f"numpy {leaf.dtype}"
    return _word(leaf.type).replace("dataclass:", "dataclass ")


def _word(kind: str) -> str:
    return "None" if kind == "NoneType" else kind


def _uncollatable(samples: Sequence[SampleLeaves], texts: Collection[str]) -> Cause | None:
    """Look for refused types; where the first value is text, the others are never looked at."""
    found: dict[str, dict[str, list[SampleId]]] = {}
    for path in _paths(samples):
        for sample in samples:
            leaf = sample.leaves.get(path)
            name = _refused(leaf) if leaf else ""
            if name and path not in texts and not _below(path, found):
                found.setdefault(path, {}).setdefault(name, []).append(sample.index)
    return _first(UNCOLLATABLE, found)


def _some_none(samples: Sequence[SampleLeaves]) -> Cause | None:
    """Look for a None that only some samples have: a collate that expects None has it in all."""
    found: dict[str, dict[str, list[SampleId]]] = {}
    for path in _paths(samples):
        having = [
            s.index for s in samples if path in s.leaves and s.leaves[path].type == "NoneType"
        ]
        if 0 < len(having) < len(samples):
            found[path] = {"None": having}
    return _first(UNCOLLATABLE, found)


def _first(rule: str, found: Mapping[str, Mapping[str, Sequence[SampleId]]]) -> Cause | None:
    if not found:
        return None
    field, *others = found
    kinds = {kind: tuple(ids) for kind, ids in found[field].items()}
    return Cause(rule, field, kinds, tuple(others))


def _mixed(samples: Sequence[SampleLeaves], texts: Collection[str] = ()) -> Cause | None:
    ragged = _ragged_lists(samples)
    found: dict[str, dict[str, list[SampleId]]] = {}
    for path in _paths(samples):
        if _below(path, ragged) or _below(path, found):
            continue
        kinds = _kinds(path, samples, ragged)
        if len(kinds) > 1 and (path not in texts or MISSING in kinds):
            found[path] = kinds
    return _first(STRUCTURE, found)


def _kinds(
    path: str, samples: Sequence[SampleLeaves], ragged: Collection[str]
) -> dict[str, list[SampleId]]:
    parent = _parent(path)
    kinds: dict[str, list[SampleId]] = {}
    for sample in samples:
        if parent is not None and parent not in sample.leaves:
            continue
        leaf = sample.leaves.get(path)
        kind = _kind(path, leaf, ragged) if leaf else MISSING
        kinds.setdefault(kind, []).append(sample.index)
    lists = [kind for kind in kinds if kind.startswith("list") and kind != EMPTY_LIST]
    if lists and EMPTY_LIST in kinds:
        kinds[lists[0]] += kinds.pop(EMPTY_LIST)
    return kinds


def _kind(path: str, leaf: Leaf, ragged: Collection[str]) -> str:
    """Name what default_collate tells apart: int and float join, a tensor and a float do not."""
    container = leaf.type.partition("[")[0]
    items = _items(leaf)
    if container == "list" and leaf.shape == (0,):
        return EMPTY_LIST
    if items and (path or container == "list"):
        return f"list of {'numbers' if items <= NUMBERS else '|'.join(sorted(items))}"
    if container in {"list", "tuple"}:
        length = "" if leaf.shape is None or path in ragged else f"({leaf.shape[0]})"
        return container + length
    if _is_number(leaf):
        return "number"
    if _is_text(leaf):
        return "str"
    return "Tensor" if _is_tensor(leaf) and leaf.type not in ARRAYS else leaf.type


def _ragged_lists(samples: Sequence[SampleLeaves]) -> set[str]:
    """Find lists whose length differs while each element has the same structure."""
    ragged = set()
    for path in _paths(samples):
        having = [s for s in samples if path in s.leaves]
        if not all(s.leaves[path].type == "list" for s in having):
            continue
        lengths = {s.leaves[path].shape for s in having}
        if len(lengths) > 1 and len(set(_elements(path, having))) <= 1:
            ragged.add(path)
    return ragged


def _elements(path: str, samples: Sequence[SampleLeaves]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield the structure of each element of a list: its inner paths and what they hold."""
    start = f"{path}." if path else ""
    for sample in samples:
        elements: dict[str, list[tuple[str, str]]] = {}
        for name in (name for name in sample.leaves if name and name.startswith(start)):
            index, _, inner = name[len(start) :].partition(".")
            kind = _kind(name, sample.leaves[name], {name})
            elements.setdefault(index, []).append((inner, kind))
        yield from (tuple(sorted(element)) for element in elements.values())


def _unequal(samples: Sequence[SampleLeaves]) -> dict[str, dict[tuple[int, ...], list[SampleId]]]:
    """Fields that are in several samples with more than one shape: shape -> samples."""
    ragged = _ragged_lists(samples)
    found: dict[str, dict[tuple[int, ...], list[SampleId]]] = {}
    for path in _paths(samples):
        if _below(path, ragged):
            continue
        shapes: dict[tuple[int, ...], list[SampleId]] = {}
        for sample in samples:
            leaf = sample.leaves.get(path)
            if leaf and leaf.shape is not None and _has_length(path, leaf, ragged):
                shapes.setdefault(leaf.shape, []).append(sample.index)
        if len(shapes) > 1:
            found[path] = shapes
    return found


def _has_length(path: str, leaf: Leaf, ragged: Collection[str]) -> bool:
    """Tell data from the containers around it, whose lengths are structure."""
    container = leaf.type in {"list", "tuple"} and path not in ragged and leaf.shape != (0,)
    return not container and (path != "" or not leaf.type.startswith("tuple["))


def _annotations(samples: Sequence[SampleLeaves]) -> Cause | None:
    unequal = _unequal(samples)
    counted = [path for path in unequal if _counts_items(path, unequal[path], samples)]
    return _shapes_cause(ANNOTATIONS, counted[0], unequal) if counted else None


def _counts_items(
    path: str, shapes: Collection[tuple[int, ...]], samples: Sequence[SampleLeaves]
) -> bool:
    """Tell a varying number of boxes, tokens or points from a varying size."""
    leaf = next(s.leaves[path] for s in samples if path in s.leaves)
    if leaf.type.startswith(("list", "tuple")):
        return True
    # A sample without boxes often has torch.tensor([]), of shape (0,).
    full = {shape for shape in shapes if shape != (0,)} or set(shapes)
    if len({shape[1:] for shape in full}) > 1 or () in full:
        return False
    row = next(iter(full))[1:]
    if not row:
        return "int" in (leaf.dtype or "") or leaf.dtype == "bool"
    return math.prod(row) <= (WIDEST_ROW if len(row) == 1 else WIDEST_POSE)


def _shape(samples: Sequence[SampleLeaves]) -> Cause | None:
    unequal = _unequal(samples)
    if not unequal:
        return None
    largest = max(unequal, key=lambda path: max(math.prod(shape) for shape in unequal[path]))
    return _shapes_cause(SHAPE, largest, unequal)


def _refused_shapes(failure: Failure) -> Cause | None:
    """Find the field that a collate of the user's own tried to join.

    Fields of other lengths beside it may be lists by design, so the two shapes that torch quotes
    decide.
    """
    unequal = _unequal(failure.samples)
    quoted = {
        tuple(int(size) for size in text.split(",") if size.strip())
        for text in _AT_ENTRY.findall(failure.message)
    }
    for path, shapes in unequal.items():
        if len(quoted) > 1 and quoted <= set(shapes):
            counts = _counts_items(path, shapes, failure.samples)
            return _shapes_cause(ANNOTATIONS if counts else SHAPE, path, {path: shapes})
    return None if quoted else _annotations(failure.samples) or _shape(failure.samples)


def _shapes_cause(
    rule: str, field: str, unequal: Mapping[str, Mapping[tuple[int, ...], Sequence[SampleId]]]
) -> Cause:
    by_count = Counter({shape: len(ids) for shape, ids in unequal[field].items()}).most_common()
    kinds = {shape_text(shape): tuple(unequal[field][shape]) for shape, _ in by_count}
    return Cause(rule, field, kinds, tuple(path for path in unequal if path != field))
