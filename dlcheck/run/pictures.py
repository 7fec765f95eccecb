"""Contact sheets of what the probe sees: a row a stage, and the batch as the model gets it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dlcheck.observation import SampleId, State, Step, shape_text
from dlcheck.observers.layout import numbers_of, state_of
from dlcheck.run import canvas, marks

LABEL_WIDTH = 250
GAP = 6
CAPTION = canvas.LINE
ROW = canvas.CELL + CAPTION + GAP
COLUMN = canvas.CELL + GAP
MOST_ROWS = 40
MOST_CELLS = 32
COLUMNS = 8
MOST_KEPT = 1_000
MOST_PIXELS = 1 << 24
SMALLEST = 3
BYTE = 255.0
FEW_CHANNELS = (1, 3, 4)
CHANNELS = 3
FLAT = 2
BETWEEN = "HCW"


class Gallery:
    """Describes arrays for a Tracer, and keeps a small picture of each that is one."""

    def __init__(self, describe: Callable[[Any], State | None] = state_of) -> None:
        self._describe = describe
        self._kept: dict[int, tuple[State, Any]] = {}

    def of(self, describe: Callable[[Any], State | None]) -> Callable[[Any], State | None]:
        """Keep pictures of what another function describes."""
        self._describe = describe
        return self.state

    def state(self, value: Any) -> State | None:
        """Describe an array as ever."""
        state = self._describe(value)
        if state is not None and len(self._kept) < MOST_KEPT:
            plane = plane_of(value, state)
            if plane is not None:
                self._kept[id(state)] = (state, plane)
        return state

    def picture(self, state: State | None) -> Any:
        """Return the picture behind a State that this gallery gave, None where it is none."""
        kept = self._kept.get(id(state))
        return None if kept is None else kept[1]


def plane_of(value: Any, state: State) -> Any:
    """Return an array as H,W,C numbers, a copy of at most some hundred pixels a side.

    Of a clip or volume the middle frame. None for what is no picture.
    """
    array = numbers_of(value)
    if array is None:
        array = _decoded(value)
    if array is None or not FLAT <= array.ndim <= FLAT + 2 or array.size > MOST_PIXELS:
        return None
    if array.dtype.kind not in "buif":
        return None
    axes = state.layout if len(state.layout) == array.ndim else guessed(array.shape)
    if "H" not in axes or "W" not in axes:
        return None
    for axis in [one for one in axes if one not in "HWC"]:
        place = axes.index(axis)
        array = array.take(array.shape[place] // 2, axis=place)
        axes = axes.replace(axis, "")
    order = [axes.index(one) for one in "HWC" if one in axes]
    array = array.transpose(order)
    if min(array.shape[:2]) < SMALLEST:
        return None
    step = max(max(array.shape[:2]) // (4 * canvas.CELL), 1)
    return (array if array.ndim > FLAT else array[:, :, None])[::step, ::step].copy()


def _decoded(value: Any) -> Any:
    if not type(value).__module__.startswith("PIL."):
        return None
    import numpy as np

    return np.asarray(value)


def guessed(shape: tuple[int, ...]) -> str:
    """Guess the axes of what the evidence does not tell, for the picture only."""
    if len(shape) == FLAT:
        return "HW"
    if len(shape) > CHANNELS:
        places = [(3, "THWC"), (1, "TCHW"), (0, "CTHW")]
        return next((axes for place, axes in places if shape[place] in FEW_CHANNELS), "")
    if len(shape) != CHANNELS:
        return ""
    if shape[0] in FEW_CHANNELS and shape[2] not in FEW_CHANNELS:
        return "CHW"
    return "HWC" if shape[2] in FEW_CHANNELS else ""


@dataclasses.dataclass(frozen=True)
class Undo:
    """How to get from numbers back to 0..1: (value - offset) / scale, a figure a channel."""

    scale: tuple[float, ...] = (1.0,)
    offset: tuple[float, ...] = (0.0,)

    def after(self, step: Step) -> Undo:
        """Add a step whose numbers are scale * before + offset."""
        if not step.scale or len(step.scale) != len(step.offset):
            return self
        width = max(len(self.scale), len(step.scale))
        mine, yours = ((_wide(one.scale, width), _wide(one.offset, width)) for one in (self, step))
        scale = tuple(a * b for a, b in zip(mine[0], yours[0], strict=True))
        offset = tuple(a * b + c for a, b, c in zip(mine[1], *yours, strict=True))
        return Undo(scale, offset) if all(scale) else self


def _wide(values: Sequence[float], width: int) -> tuple[float, ...]:
    return tuple(values) if len(values) == width else (values[0],) * width


def undo_of(steps: Iterable[Step]) -> Undo | None:
    """Compose what the stages of a way did to the numbers; None where it began unknown."""
    way = list(steps)
    first = next(
        (s for one in way for s in (one.before, one.after) if s and s.high is not None), None
    )
    if first is None or first.high is None or first.low is None or first.low < 0:
        return None
    top = BYTE if first.dtype == "uint8" or (first.high > 1 and first.high <= BYTE) else 1.0
    if first.high > top:
        return None
    found = Undo((top,), (0.0,))
    for step in way:
        found = found.after(step)
    return found


def visible(plane: Any, undo: Undo | None = None) -> tuple[Any, str]:
    """Turn H,W,C numbers into H,W,3 bytes; the second item says what was done to see them."""
    import numpy as np

    ids = plane[:, :, 0]
    if plane.shape[2] == 1 and plane.dtype.kind in "bui" and marks.is_label_map(ids):
        return marks.coloured(ids), "ids"
    numbers = plane.astype("float32")[:, :, :CHANNELS]
    if numbers.shape[2] != CHANNELS:
        numbers = numbers[:, :, :1].repeat(CHANNELS, axis=2)
    finite = np.isfinite(numbers)
    bad = ~finite.all(axis=2)
    numbers = np.where(finite, numbers, 0.0)
    low, high = float(numbers.min()), float(numbers.max())
    if plane.dtype == np.uint8:
        shown, how = numbers / BYTE, ""
    elif plane.dtype.kind == "f" and low >= 0 and high <= 1:
        shown, how = numbers, ""
    elif undo is not None and len(undo.scale) in (1, CHANNELS):
        scale, offset = np.asarray(undo.scale), np.asarray(undo.offset)
        shown, how = (numbers - offset) / scale, "denormalised" if len(scale) > 1 else "0..255"
        if shown.min() < -1 or shown.max() > FLAT:
            shown, how = (numbers - low) / max(high - low, 1e-9), "stretched"
    else:
        shown, how = (numbers - low) / max(high - low, 1e-9), "stretched"
    picture = (shown.clip(0, 1) * BYTE + 0.5).astype("uint8")
    picture[bad] = canvas.RED
    return picture, how


@dataclasses.dataclass
class Way:
    """One sample as it was traced for a sheet: its steps and finished value."""

    sample: SampleId
    steps: tuple[Step, ...]
    fields: dict[str, State]
    gallery: Gallery
    value: Any = None
    title: str = ""


def journey_sheet(ways: Sequence[Way]) -> Any:
    """Draw a page: a row a stage, a column a sample, field after field. None without a picture."""
    rows = rows_of(ways)[:MOST_ROWS]
    if not rows:
        return None
    page = canvas.blank(canvas.LINE + GAP + ROW * len(rows), LABEL_WIDTH + COLUMN * len(ways))
    for column, way in enumerate(ways):
        canvas.write(
            page, f"{way.title or 'sample'} {way.sample}"[:20], 2, LABEL_WIDTH + COLUMN * column
        )
    for number, row in enumerate(rows):
        _draw_row(page, row, ways, canvas.LINE + GAP + ROW * number)
    return page


Row = dict[int, Step]


Place = tuple[str, int, str, int | None, int]


def rows_of(ways: Sequence[Way]) -> list[Row]:
    """Line the stages up over the samples, in order: the step of each sample that passed one.

    Of a sample that was finished only the steps that led to a field; of a failed one all.
    """
    rows: dict[Place, Row] = {}
    order: list[Place] = []
    for way in ways:
        at = 0
        turns: dict[tuple[Any, ...], int] = {}
        for step in way.steps:
            if way.gallery.picture(step.after) is None or (way.fields and not step.fields):
                continue
            place = (step.file, step.line, step.stage, step.position)
            turns[place] = turns.get(place, 0) + 1
            key: Place = (*place, turns[place])
            if key not in rows:
                rows[key] = {}
                order.insert(at, key)
            at = order.index(key) + 1
            rows[key][id(way)] = step
    return [rows[key] for key in order]


def _draw_row(page: Any, row: Row, ways: Sequence[Way], top: int) -> None:
    first = next(iter(row.values()))
    fields = ", ".join(field for field in first.fields if field)
    place = f"{Path(first.file).name}:{first.line}"
    words = [
        fields and f"field {fields}", first.stage, *_cut(first.parameters), place,
        _looks(first.after), _range(first.after),
    ]  # fmt: skip
    for number, line in enumerate(word for word in words if word):
        ink = canvas.GREY if line == place else canvas.INK
        canvas.write(page[:, : LABEL_WIDTH - GAP], line, top + canvas.LINE * number, GAP, ink)
    for column, way in enumerate(ways):
        step = row.get(id(way))
        if step is None:
            continue
        left = LABEL_WIDTH + COLUMN * column
        chain = [one for one in way.steps[: way.steps.index(step) + 1] if _leads(one, step)]
        shown, how = visible(way.gallery.picture(step.after), undo_of(chain))
        canvas.paste(page, canvas.fit(shown)[0], top, left)
        caption = how or shape_text(step.after.shape or ())
        odd = step.after.shape != first.after.shape
        text = shape_text(step.after.shape or ()) if odd else caption
        cell = page[:, left : left + canvas.CELL]
        canvas.write(cell, text, top + canvas.CELL, 0, canvas.RED if odd else canvas.GREY)


def _cut(parameters: str) -> list[str]:
    """Break parameters into two lines that fit."""
    room = (LABEL_WIDTH - 2 * GAP) // canvas.GLYPH
    return [parameters[:room], parameters[room : 2 * room]] if parameters else []


def _leads(one: Step, step: Step) -> bool:
    return bool(set(one.fields) & set(step.fields)) or not step.fields


def _looks(state: State) -> str:
    shape = shape_text(state.shape or ())
    return " ".join(part for part in (state.dtype or state.type, shape, state.layout) if part)


def _range(state: State) -> str:
    return "" if state.low is None or state.high is None else f"{state.low:.4g} .. {state.high:.4g}"


def batch_sheet(items: Sequence[Any], facts: marks.Facts, undo: dict[str, Undo]) -> Any:
    """Draw the samples of a batch as the model sees them, with what is marked on them."""
    drawn = list(cells(items[:MOST_CELLS], facts, undo))
    if not drawn:
        return None
    across = min(COLUMNS, len(drawn))
    down = -(-len(drawn) // across)
    page = canvas.blank(GAP + ROW * down, GAP + COLUMN * across)
    for place, (number, picture, words) in enumerate(drawn):
        top, left = GAP + ROW * (place // across), GAP + COLUMN * (place % across)
        canvas.paste(page, picture, top, left)
        cell = page[:, left : left + canvas.CELL]
        canvas.write(cell, f"[{number}] {words}", top + canvas.CELL, 0)
    return page


def cells(
    items: Sequence[Any], facts: marks.Facts, undo: dict[str, Undo]
) -> Iterator[tuple[int, Any, str]]:
    """Draw the items of a batch that are pictures: (its number, H,W,3 bytes, words)."""
    for number, item in enumerate(items):
        cell = _cell(item, facts, undo)
        if cell is not None:
            yield (number, *cell)


def _cell(item: Any, facts: marks.Facts, undo: dict[str, Undo]) -> tuple[Any, str] | None:
    """Draw one item of a batch: its image, and masks, boxes, points and label on it."""
    leaves = marks.leaves(item, facts.names)
    for path, value in leaves.items():
        state = facts.describe(value)
        if state is not None and state.layout == BETWEEN:
            # A model takes axis 0 for the channels, whatever lies there.
            state = dataclasses.replace(state, layout="CHW")
        plane = None if state is None else plane_of(value, state)
        if state is None or plane is None or state.dtype == "bool":
            continue
        if len(state.shape or ()) < CHANNELS and len(leaves) > FLAT:
            continue
        shown, how = visible(plane, undo.get(path))
        size = plane.shape[:2]
        picture, factor = canvas.fit(shown)
        picture = picture.copy()
        marks.draw(marks.Sheet(picture, path, size, factor), leaves, facts)
        words = marks.caption(leaves, path) or how or shape_text(state.shape or ())
        return picture, words
    return None


def unbatched(batch: Any, samples: int) -> list[Any]:
    """Part a batch into its items again: what is as long as the batch is taken apart.

    A collate that gives another number of rows than samples (crops, views) is parted by its rows.
    """
    values = list(itertools.islice(_values(batch), MOST_KEPT))
    lengths = [_length(value) for value in values]
    rows = [length for value, length in zip(values, lengths, strict=True) if _is_array(value)]
    size = samples if samples and samples in lengths else next(iter(rows), 0)
    return [_item(batch, number, size) for number in range(size)]


def _values(value: Any) -> Iterable[Any]:
    """Yield a batch, its containers and its leaves."""
    yield value
    if isinstance(value, dict | tuple | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _values(one)


def _is_array(value: Any) -> bool:
    return getattr(value, "shape", None) is not None and len(value.shape) > 0


def _length(value: Any) -> int:
    if _is_array(value):
        return int(value.shape[0])
    return len(value) if isinstance(value, tuple | list) else 0


def _item(value: Any, number: int, size: int) -> Any:
    if isinstance(value, dict):
        return {key: _item(one, number, size) for key, one in value.items()}
    if _is_array(value):
        return value[number] if value.shape[0] == size else value
    if isinstance(value, tuple | list):
        # (images, labels) of a batch of two is no list with an item a sample.
        columns = bool(value) and all(_length(one) == size for one in value)
        if len(value) == size and not columns:
            return value[number]
        return tuple(_item(one, number, size) for one in value)
    return value
