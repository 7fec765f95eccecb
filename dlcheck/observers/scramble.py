"""Find arrays that were viewed or reshaped where their axes should have been permuted.

The elements are all there in the wrong order: memory of H,W,C read as C,H,W has colours side by
side along the last axis (a period of C) and one line of the picture in C rows; memory of C,H,W
read as H,W,C shows C small copies across. What decides is the undoing: reshaped back, both sides
are smooth and the channels show one scene, which no texture with a period of its own does.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from dlcheck.observers.axes import as_numbers, layout_of

ORDERS = {3: ("CHW", "HWC"), 4: ("CTHW", "TCHW", "THWC")}
MOST_CHANNELS = 4
SMALLEST_SIDE = 12
MOST_ELEMENTS = 1 << 25
PROBES = 8_192
SMOOTHER = 0.9
MUCH_SMOOTHER = 0.6
AGREE = 0.3
COPIES = 0.97
EVEN = 1.4
MOST_ROWS = 64


class Undoing(NamedTuple):
    """One way to read the memory: how its axes are now, and how they were before the view."""

    now: str
    shape: tuple[int, ...]
    before: str
    shape_before: tuple[int, ...]

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return self.shape[self.now.index("C")]


def scramble_of(array: Any) -> dict[str, float]:
    """Give the lag figures of a view in place of a permute; empty when there was none.

    Elements `period` apart along `axis` differ by `lagC`, neighbours by `lag1` (means, over the
    whole spread); `undone` is the roughness after the undoing over that before.
    """
    plain = as_numbers(array)
    if plain is None or plain.ndim not in ORDERS or plain.size > MOST_ELEMENTS:
        return {}
    ways = list(_undoings(plain.shape))
    if not ways:
        return {}
    numpy = sys.modules["numpy"]
    with numpy.errstate(all="ignore"):
        flat = numpy.ascontiguousarray(plain).reshape(-1)
        ranked = [(_smoothed(numpy, flat, way), way) for way in ways]
        ratio, way = min(ranked, key=lambda pair: pair[0])
        if ratio >= SMOOTHER or not _decided(numpy, flat, way, ratio):
            return {}
        return _figures(numpy, _frame(flat.reshape(way.shape), way.now), way, ratio)


def _undoings(shape: tuple[int, ...]) -> Iterator[Undoing]:
    """Yield each way that another shape of the same sizes may have become this one."""
    orders = ORDERS[len(shape)]
    for now, before in itertools.permutations(orders, 2):
        sizes = dict(zip(now, shape, strict=True))
        if not 1 < sizes["C"] <= MOST_CHANNELS or min(sizes["H"], sizes["W"]) < SMALLEST_SIDE:
            continue
        turned = {**sizes, "H": sizes["W"], "W": sizes["H"]}
        for was in (sizes, turned) if sizes["H"] != sizes["W"] else (sizes,):
            yield Undoing(now, shape, before, tuple(was[letter] for letter in before))


def _smoothed(numpy: Any, flat: Any, way: Undoing) -> float:
    """Neighbours' difference in height and width after the undoing, over that before."""
    now = sum(_apart(numpy, flat, lag) for lag in _steps(way.now, way.shape))
    before = sum(_apart(numpy, flat, lag) for lag in _steps(way.before, way.shape_before))
    return before / now if now > 0 and math.isfinite(now) else 1.0


def _steps(letters: str, shape: tuple[int, ...]) -> list[int]:
    """Count the elements between neighbours in height and in width."""
    return [math.prod(shape[letters.index(side) + 1 :]) for side in "HW"]


def _apart(numpy: Any, flat: Any, lag: int) -> float:
    """Mean absolute difference of elements `lag` apart in memory."""
    count = flat.size - lag
    # An odd step that 3 does not divide meets the phases of channels and rows alike.
    step = max(1, count // PROBES) | 1
    step += 2 * (step > 1 and step % 3 == 0)
    if count <= 0:
        return 0.0
    one, other = flat[lag::step].astype("f4"), flat[:count:step].astype("f4")
    return float(numpy.abs(one - other).mean())


def _decided(numpy: Any, flat: Any, way: Undoing, ratio: float) -> bool:
    """Whether the undone array is a picture, and the array as it stands is none."""
    undone = _frame(flat.reshape(way.shape_before), way.before)
    letters = way.before.replace("T", "")
    if layout_of(undone) != letters:
        return False
    frame = _frame(flat.reshape(way.shape), way.now)
    if way.now.endswith("C"):
        return _even(numpy, frame)
    gain = _agreement(numpy, undone, letters, 1) - _agreement(numpy, frame, "CHW", way.channels)
    return gain > AGREE or (ratio < MUCH_SMOOTHER and "T" in way.now and not layout_of(frame))


def _frame(whole: Any, letters: str) -> Any:
    """Take the middle one of a clip's frames."""
    if "T" not in letters:
        return whole
    axis = letters.index("T")
    return whole.take(whole.shape[axis] // 2, axis=axis)


def _agreement(numpy: Any, frame: Any, letters: str, lag: int) -> float:
    """Correlation of the channels' edges: near 1 where all show one scene."""
    planes = numpy.moveaxis(frame, letters.index("C"), 0)
    planes = planes[:, :: 1 + planes.shape[1] // MOST_ROWS].astype("f4")
    if _correlation(numpy, planes) > COPIES:
        return 1.0
    return _correlation(numpy, numpy.abs(planes[:, :, lag:] - planes[:, :, :-lag]))


def _correlation(numpy: Any, planes: Any) -> float:
    lines = planes.reshape(len(planes), -1)
    lines = lines[lines.std(axis=1) > 0]
    if len(lines) < 2:  # noqa: PLR2004 - one channel agrees with nothing
        return 0.0
    table = numpy.corrcoef(lines)
    return float((table.sum() - len(lines)) / (table.size - len(lines)))


def _even(numpy: Any, frame: Any) -> bool:
    """Whether stepping through the channels of H,W,C is like stepping from pixel to pixel.

    So it is where the "channels" are neighbours in space; colours differ unevenly, and the
    channels of a gray picture not at all.
    """
    part = frame[:: 1 + len(frame) // MOST_ROWS].astype("f4")
    inner = numpy.abs(part[..., 1:] - part[..., :-1]).mean(axis=(0, 1))
    wrap = numpy.abs(part[:, 1:, 0] - part[:, :-1, -1]).mean()
    steps = [*inner.tolist(), float(wrap)]
    return bool(0.0 < max(steps) <= EVEN * min(steps))


def _figures(numpy: Any, frame: Any, way: Undoing, ratio: float) -> dict[str, float]:
    """Quote the period: the colours' along the last axis, or the copies' across."""
    across = way.now.replace("T", "").index("W")
    lines = numpy.moveaxis(frame[:: 1 + len(frame) // MOST_ROWS], across, -1).astype("f4")
    copies = way.now.endswith("C")
    period = round(lines.shape[-1] / way.channels) if copies else way.channels
    spread = float(numpy.abs(lines - lines.mean()).mean()) or 1.0
    near, far = (
        float(numpy.abs(lines[..., lag:] - lines[..., :-lag]).mean()) / spread
        for lag in (1, period)
    )
    return {
        "lag1": round(near, 4),
        "lagC": round(far, 4),
        "period": float(period),
        "axis": float(way.now.index("W")),
        "undone": round(ratio, 4),
    }
