"""Boxes beside the image of the same sample: how many are upside down, empty or outside it."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Any

from dlcheck.observation import SampleId
from dlcheck.observers.describe import Described
from dlcheck.run.torch_private import plain_tensors

CORNERS = 4
MOST_BOXES = 512
MATRIX = 2
PLANES = 3
CHANNELS = frozenset({1, 3, 4})
SMALLEST_IMAGE = 8
SLACK = 1.0
UNIT = 1.001
NUMBERS = frozenset({"float32", "float64", "float16", "bfloat16", "int16", "int32", "int64"})
NAMES = re.compile(r"box|roi|rect", re.IGNORECASE)
Size = tuple[int, int]
Box = tuple[float, float, float, float]


def may_be_boxes(leaf: Described) -> bool:
    """Tell arrays of shape (n, 4) that are named like boxes, or are boxes by their type."""
    shape = leaf.shape
    if leaf.dtype not in NUMBERS or shape is None or len(shape) != MATRIX or shape[1] != CORNERS:
        return False
    return leaf.type == "BoundingBoxes" or bool(NAMES.search(leaf.path.rpartition(".")[2]))


class BoxCount:
    """Counts the boxes of a batch's samples; `found` holds Boxes by field, in JSON."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def add(self, index: SampleId, arrays: list[tuple[str, Any]], leaves: list[Described]) -> None:
        """Count the boxes of one sample."""
        image = image_size(leaves)
        for path, value in arrays:
            rows = rows_of(value)
            if rows is None:
                continue
            entry = self.found.setdefault(path, _nothing())
            entry["arrays"] += 1
            entry["empty"] += not rows
            stated, canvas = stated_format(value)
            if stated:
                _add(entry["formats"], stated, index)
            self.count(entry, index, rows, image or canvas)

    @staticmethod
    def count(entry: dict[str, Any], index: SampleId, rows: list[Box], size: Size | None) -> None:
        """Count the faults of one array of boxes in each format."""
        entry["n"] += len(rows)
        if not rows:
            return
        entry["high"] = max(entry["high"], *(max(row) for row in rows))
        unit = all(-UNIT < x <= UNIT for row in rows for x in row)
        entry["unit"] += unit
        entry["sized"] += len(rows) if size else 0
        met: dict[str, tuple[float, ...]] = {}
        for row in rows:
            for fault in faults(row, None if unit else size):
                entry["boxes"][fault] = entry["boxes"].get(fault, 0) + 1
                met.setdefault(fault, (*row, *((size[1], size[0]) if size else ())))
        for fault, example in met.items():
            _add(entry["faults"], fault, index)
            entry["worst"].setdefault(fault, example)


def faults(row: Box, size: Size | None) -> list[str]:
    """Name what is wrong with a box in each format that it may have."""
    a, b, c, d = row
    found = []
    if c < a or d < b:
        found.append("xyxy.inverted")
    elif c == a or d == b:
        found.append("xyxy.flat")
    if c <= 0 or d <= 0:
        found += ["xywh.flat", "cxcywh.flat"]
    if size is not None:
        corners = {
            "xyxy": row,
            "xywh": (a, b, a + c, b + d),
            "cxcywh": (a - c / 2, b - d / 2, a + c / 2, b + d / 2),
        }
        found += [f"{name}.outside" for name, one in corners.items() if _outside(one, size)]
    return found


def _outside(corners: Box, size: Size) -> bool:
    height, width = size
    lows, highs = min(corners[:2]), corners[2:]
    return lows < -SLACK or highs[0] > width + SLACK or highs[1] > height + SLACK


def rows_of(value: Any) -> list[Box] | None:
    """Copy the boxes out of an array or tensor in this process's memory."""
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):
        if torch is not None and isinstance(value, torch.Tensor):
            with plain_tensors():
                if value.device.type != "cpu":
                    return None
                rows = value.detach()[:MOST_BOXES].tolist()
        else:
            rows = value[:MOST_BOXES].tolist()
        kept = [tuple(map(float, row)) for row in rows]
        return [row for row in kept if all(abs(x) < float("inf") for x in row)]  # type: ignore[misc]
    return None


def stated_format(value: Any) -> tuple[str, Size | None]:
    """Return what torchvision's BoundingBoxes say of themselves: format and canvas size."""
    if type(value).__name__ != "BoundingBoxes":
        return "", None
    with contextlib.suppress(Exception):
        height, width = value.canvas_size
        return str(value.format.name).lower(), (int(height), int(width))
    return "", None


def image_size(leaves: list[Described]) -> Size | None:
    """Return (height, width) of the sample's only image; None where there are several sizes."""
    sizes = {size for leaf in leaves if (size := _size(leaf)) is not None}
    return sizes.pop() if len(sizes) == 1 else None


def _size(leaf: Described) -> Size | None:
    shape = leaf.shape
    if leaf.type == "PIL.Image" and shape:
        return shape[0], shape[1]
    if leaf.dtype is None or shape is None or len(shape) != PLANES:
        return None
    first, last = shape[0] in CHANNELS, shape[2] in CHANNELS
    if first == last or min(shape[1:] if first else shape[:2]) < SMALLEST_IMAGE:
        return None
    return (shape[1], shape[2]) if first else (shape[0], shape[1])


def _nothing() -> dict[str, Any]:
    counts = dict.fromkeys(("n", "arrays", "sized", "unit", "empty"), 0)
    return {**counts, "high": 0.0, "faults": {}, "boxes": {}, "formats": {}, "worst": {}}


def _add(counter: dict[str, Any], key: str, index: SampleId) -> None:
    entry = counter.setdefault(key, {"n": 0, "at": []})
    entry["n"] += 1
    if len(entry["at"]) < 3 and index not in entry["at"]:  # noqa: PLR2004
        entry["at"].append(index)
