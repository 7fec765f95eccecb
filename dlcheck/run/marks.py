"""What is drawn on a picture: masks, boxes, points, and the label below it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dlcheck.observation import State
from dlcheck.observers.layout import numbers_of
from dlcheck.run import canvas

BOXES = re.compile(r"box", re.IGNORECASE)
POINTS = re.compile(r"key_?point|landmark|point|kps", re.IGNORECASE)
MASKS = re.compile(r"mask|seg|label|target|^1$", re.IGNORECASE)
LABELS = re.compile(r"label|class|target|^y$|^1$", re.IGNORECASE)
MOST_IDS = 64
MOST_MARKS = 64
MOST_PIXELS = 1 << 22
CORNERS = 4
FLAT = 2
CHANNELS = 3
VEIL = 0.45
HALF = 0.5
IGNORED = 255
DEEPEST = 4


@dataclass(frozen=True)
class Facts:
    """What is known of a split's fields: names of the tuple's items, and the config's `fields`."""

    describe: Callable[[Any], State | None]
    names: tuple[str, ...] = ()
    fields: dict[str, dict[str, Any]] = field(default_factory=dict)

    def kind(self, path: str) -> str:
        """Return the kind that the config declares, empty where it does not."""
        said = self.fields.get(path)
        return str(said.get("kind", "")) if isinstance(said, dict) else ""

    def format(self, path: str, value: Any) -> str:
        """Return the format of boxes: declared, of a tv_tensor, else xyxy."""
        said = self.fields.get(path)
        declared = said.get("format") if isinstance(said, dict) else None
        own = getattr(getattr(value, "format", None), "name", None)
        return str(declared or own or "xyxy").lower()


def leaves(value: Any, names: tuple[str, ...] = (), path: str = "") -> dict[str, Any]:
    """List the leaves of one sample by dotted path."""
    if isinstance(value, dict):
        items = [(str(key), one) for key, one in value.items()]
    elif isinstance(value, tuple | list) and path.count(".") < DEEPEST:
        plain = range(len(value))
        own = getattr(value, "_fields", names if not path and len(names) == len(value) else plain)
        items = [(str(key), one) for key, one in zip(own, value, strict=False)]
    else:
        return {path: value}
    found: dict[str, Any] = {}
    for key, one in items[:MOST_MARKS]:
        found |= leaves(one, (), f"{path}.{key}" if path else key)
    return found


def is_label_map(plane: Any) -> bool:
    """Tell ids from the levels of a grey picture: few of them, in patches."""
    import numpy as np

    if plane.dtype == bool:
        return True
    some = plane[:: max(plane.shape[0] // 64, 1), :: max(plane.shape[1] // 64, 1)]
    ids = np.unique(some)
    return (
        len(ids) <= MOST_IDS // 2
        and int(ids.min()) >= -1
        and (
            int(ids.max()) < MOST_IDS or set(ids.tolist()) <= {0, 1, IGNORED} or len(ids) <= CORNERS
        )
    )


def coloured(plane: Any) -> Any:
    """Paint ids: 0 black, 255 (ignored) white, others by the palette."""
    import numpy as np

    ids = plane.astype("int64")
    palette = np.asarray(canvas.PALETTE, dtype="uint8")
    picture = palette[(ids - 1) % len(palette)]
    picture[ids == 0] = 0
    picture[ids == IGNORED] = IGNORED
    return picture


@dataclass(frozen=True)
class Sheet:
    """A picture, `factor` as large as the image at `image` of `size` (height, width)."""

    picture: Any
    image: str
    size: tuple[int, int]
    factor: float


def draw(sheet: Sheet, found: dict[str, Any], facts: Facts) -> None:
    """Draw the masks, boxes and points of one sample on its image."""
    for path, value in found.items():
        array = numbers_of(value)
        if path == sheet.image or array is None or array.dtype.kind not in "buif":
            continue
        name, kind = path.rpartition(".")[2], facts.kind(path)
        if kind == "mask" or (not kind and _fits(array, sheet.size) and MASKS.search(name)):
            _veil(sheet.picture, array, sheet.size)
        elif kind == "boxes" or (not kind and BOXES.search(name)):
            _boxes(sheet, array, facts.format(path, value))
        elif kind == "keypoints" or (not kind and POINTS.search(name) and array.ndim >= FLAT):
            _points(sheet, array)


def _boxes(sheet: Sheet, array: Any, order: str) -> None:
    if not _rows(array, CORNERS):
        return
    for number, box in enumerate(array.reshape(-1, CORNERS)[:MOST_MARKS]):
        corners = [sheet.factor * corner for corner in _corners(box, order, sheet.size)]
        canvas.frame(sheet.picture, corners, canvas.PALETTE[number % len(canvas.PALETTE)])


def _points(sheet: Sheet, array: Any) -> None:
    if array.ndim < 1 or array.shape[-1] < FLAT:
        return
    for number, point in enumerate(array.reshape(-1, array.shape[-1])[:MOST_MARKS]):
        x, y = (sheet.factor * float(value) for value in point[:FLAT])
        canvas.dot(sheet.picture, x, y, canvas.PALETTE[number % len(canvas.PALETTE)])


def _rows(array: Any, width: int) -> bool:
    return bool(array.ndim >= 1 and array.size > 0 and array.shape[-1] == width)


def _fits(array: Any, size: tuple[int, int]) -> bool:
    flat = array.shape[1:] if array.ndim == CHANNELS and array.shape[0] == 1 else array.shape
    return tuple(flat) == size and array.size <= MOST_PIXELS


def _veil(picture: Any, array: Any, size: tuple[int, int]) -> None:
    """Lay the ids of a mask over the picture; 0 stays clear."""
    import numpy as np

    if not _fits(array, size):
        return
    plane = array.reshape(size)
    ids = (plane > HALF).astype("uint8") if plane.dtype.kind == "f" and plane.max() <= 1 else plane
    rows = np.arange(picture.shape[0]) * size[0] // picture.shape[0]
    columns = np.arange(picture.shape[1]) * size[1] // picture.shape[1]
    large = ids[rows][:, columns].astype("int64")
    there = large != 0
    paint = coloured(large)
    mixed = picture[there] * (1 - VEIL) + paint[there] * VEIL
    picture[there] = mixed.astype("uint8")


def _corners(box: Any, order: str, size: tuple[int, int]) -> list[float]:
    """Turn a box of any format into x1,y1,x2,y2 in pixels; figures up to 1 are shares."""
    a, b, c, d = (float(value) for value in box[:CORNERS])
    if order.startswith("xywh"):
        corners = [a, b, a + c, b + d]
    elif order.startswith("cxcywh"):
        corners = [a - c / 2, b - d / 2, a + c / 2, b + d / 2]
    else:
        corners = [a, b, c, d]
    if order.endswith("n") or max(map(abs, corners)) <= 1:
        corners = [v * side for v, side in zip(corners, (size[1], size[0]) * 2, strict=True)]
    return corners


def caption(found: dict[str, Any], image: str) -> str:
    """Return the label of a sample as words: `1`, `cat`, `3 boxes`, `[0.7, 0.3]`."""
    for path, value in found.items():
        if path == image or not LABELS.search(path.rpartition(".")[2]):
            continue
        if isinstance(value, str | int | float):
            return str(value)[:18]
        array = numbers_of(value)
        if array is None or array.size == 0 or array.size > MOST_MARKS or array.ndim > 1:
            continue
        if array.ndim == 0 or array.size == 1:
            return f"{float(array.reshape(-1)[0]):g}"
        return " ".join(f"{float(number):.2g}" for number in array[:6])
    return ""
