"""Tell which axis of an array is which from its values: neighbours in space resemble each other.

An axis is spatial when the difference between neighbours along it is small and grows with the
distance (1, 2, 4, ... elements apart), as in pictures; two such axes of like roughness make a
picture, and what is left are channels, frames or views. Sizes alone decide nothing: they only
bound what is tried. An empty answer means that the values do not tell.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any, NamedTuple

MOST_SAMPLED = 14_000
SMALLEST_SIDE = 8
FEW_CHANNELS = 4
MOST_AXES = 5
NEAR = 0.88
UNLIKE = 0.5
FLAT = 1e-6
GROWS = 1.03
LIKE = 6.0
CLEARLY = 1.45
SAME_SCENE = 0.6
SPATIAL_PAIR = 2
WITH_DEPTH = 3
MOST_REST = 2


class Axis(NamedTuple):
    """Neighbours along one axis: mean absolute difference at each lag, over the whole spread."""

    size: int
    lags: dict[int, float]
    sampled: int

    @property
    def near(self) -> float:
        """The difference between direct neighbours."""
        return self.lags.get(1, 0.0)

    @property
    def far(self) -> float:
        """The largest difference at any distance."""
        return max(self.lags.values(), default=0.0)

    @property
    def spatial(self) -> bool:
        """Whether the difference is small next to the far one and grows with the distance."""
        if self.size < SMALLEST_SIDE or self.far <= FLAT:
            return False
        noise = 4.0 / max(1.0, self.sampled) ** 0.5
        if self.near >= self.far * min(NEAR, 1.0 - noise):
            return False
        lags = self.lags
        steps = [(lags[1], lags[2]), (lags[1], lags[3]), (lags[2], lags[4])]
        return all(short <= GROWS * long for short, long in steps)


def layout_of(array: Any) -> str:
    """Name the axes of one sample's array: CHW, HWC, HCW, HW, THWC, TCHW, CTHW, NCHW, ..."""
    shape = tuple(array.shape)
    kept = [axis for axis, size in enumerate(shape) if size != 1]
    if not SPATIAL_PAIR <= len(kept) <= MOST_AXES or len(shape) > MOST_AXES:
        return ""
    if sum(shape[axis] >= SMALLEST_SIDE for axis in kept) < SPATIAL_PAIR:
        return ""
    plain = as_numbers(array)
    if plain is None:
        return ""
    named = _named(measured(plain.reshape([shape[axis] for axis in kept])))
    text = _with_single(named, kept, len(shape)) if named else ""
    # Three smooth axes alone may be a volume, a clip or a picture of many narrow bands.
    return text if "C" in text or text == "HW" else ""


def layout_evidence(array: Any) -> dict[str, float]:
    """Give the figures behind `layout_of`, {"axis0.lag1": 0.12, ...}, over the whole spread."""
    plain = as_numbers(array)
    if plain is None:
        return {}
    return {
        f"axis{number}.lag{lag}": round(value, 4)
        for number, axis in enumerate(measured(plain))
        for lag, value in axis.lags.items()
    }


def as_numbers(array: Any) -> Any:
    """View the array as real numbers; None where it holds none."""
    numpy = sys.modules["numpy"]
    plain = numpy.asarray(array)
    if not plain.size or plain.dtype.kind not in "biuf":
        return None
    return plain.view("u1") if plain.dtype.kind == "b" else plain


def measured(plain: Any) -> list[Axis]:
    """Measure the neighbours along every axis of a real array."""
    numpy = sys.modules["numpy"]
    with numpy.errstate(all="ignore"):
        spread = _spread(numpy, plain)
        return [_axis(numpy, plain, number, spread) for number in range(plain.ndim)]


def _spread(numpy: Any, plain: Any) -> float:
    """Mean absolute deviation of a sample of all elements; 0 for constant ones."""
    part = _floats(numpy, thinned(plain, -1))
    return float(numpy.abs(part - part.mean()).mean())


def _axis(numpy: Any, plain: Any, number: int, spread: float) -> Axis:
    size = plain.shape[number]
    part = _floats(numpy, numpy.moveaxis(thinned(plain, number), number, 0))
    part = numpy.ascontiguousarray(part).reshape(size, -1)
    lags: dict[int, float] = {}
    for lag in _lags(size):
        change = float(numpy.abs(part[lag:] - part[:-lag]).mean())
        lags[lag] = change / spread if spread > 0 else 0.0
    return Axis(size, lags, part.size)


def _lags(size: int) -> list[int]:
    lags = {1, 2, 3, 4, size // 8, size // 3, size // 2}
    return sorted(lag for lag in lags if 0 < lag < size)


def thinned(plain: Any, kept: int, most: int = MOST_SAMPLED) -> Any:
    """Take every n-th element along other axes than `kept`, until about `most` are left."""
    shape = list(plain.shape)
    step = [1] * len(shape)
    while (size := _product(-(-n // s) for n, s in zip(shape, step, strict=True))) > most:
        others = [axis for axis in range(len(shape)) if axis != kept]
        longest = max(others, key=lambda axis: shape[axis] / step[axis], default=None)
        if longest is None or shape[longest] <= step[longest]:
            break
        step[longest] += max(1, int(step[longest] * min(1.0, size / most - 1.0) / 2))
    return plain[tuple(slice((s - 1) // 2, None, s) for s in step)]


def _product(sizes: Any) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _floats(numpy: Any, part: Any) -> Any:
    """Read as float32, in the range of -1 to 1; what is not finite takes the middle's place."""
    wide = part.astype("f8" if part.dtype.itemsize > WITH_DEPTH else "f4")
    if part.dtype.kind == "f":
        finite = numpy.isfinite(wide)
        if not finite.all():
            middle = float(numpy.median(wide[finite])) if finite.any() else 0.0
            wide = numpy.where(finite, wide, middle)
    low, high = float(wide.min()), float(wide.max())
    scale = max(abs(low), abs(high))
    return (wide / scale).astype("f4") if scale > 0 else wide.astype("f4")


def _named(axes: list[Axis]) -> str:
    """Letter the axes longer than one; empty where the evidence does not tell."""
    spatial = [number for number, axis in enumerate(axes) if axis.spatial]
    rest = [number for number in range(len(axes)) if number not in spatial]
    letters = _rest_letters(axes, rest, min((axes[n].size for n in spatial), default=0))
    if letters is None:
        return ""
    if len(spatial) == WITH_DEPTH:
        depth = _depth(axes, spatial)
        letters[depth] = "T"
        spatial = [number for number in spatial if number != depth]
    if (
        len(spatial) != SPATIAL_PAIR
        or not _like(axes, spatial)
        or len(set(letters.values())) < len(letters)
    ):
        return ""
    sides = iter("HW")
    return "".join(letters.get(number) or next(sides) for number in range(len(axes)))


def _like(axes: list[Axis], pair: list[int]) -> bool:
    """Whether two axes are as rough as each other, as the two sides of a picture are."""
    low, high = sorted(axes[number].near for number in pair)
    return low > FLAT and high <= LIKE * low


def _rest_letters(axes: list[Axis], rest: list[int], side: int) -> dict[int, str] | None:
    """Letter what is not spatial: channels, frames, views; None where that cannot be told."""
    if len(rest) > MOST_REST:
        return None
    short = [number for number in rest if axes[number].size <= FEW_CHANNELS]
    if len(rest) == MOST_REST:
        if len(short) != 1:
            return None
        other = next(number for number in rest if number != short[0])
        return {short[0]: "C", other: "T" if axes[other].near < SAME_SCENE else "N"}
    told = not rest or short or _bands(axes[rest[0]], side)
    return dict.fromkeys(rest, "C") if told else None


def _bands(axis: Axis, side: int) -> bool:
    """Whether an axis longer than colours need holds bands, classes or joints, one beside another.

    Two of its neighbours differ much as any two do. A longer axis than half of the picture's side
    is taken for none: it may be space whose texture hides that.
    """
    others = [change for lag, change in axis.lags.items() if lag > 1]
    alike = axis.near <= UNLIKE * sum(others) / max(1, len(others))
    return 2 * axis.size <= side and (not alike or axis.far <= FLAT)


def _depth(axes: list[Axis], spatial: list[int]) -> int:
    """Find depth or time among three smooth axes: the roughest, else the first."""
    roughest = max(spatial, key=lambda number: axes[number].near)
    others = [axes[number].near for number in spatial if number != roughest]
    clear = axes[roughest].near > CLEARLY * max(others)
    return roughest if clear and roughest != spatial[1] else spatial[0]


def _with_single(named: str, kept: list[int], ndim: int) -> str:
    """Put letters for the axes of size one back: the channel if there is none yet, else N."""
    letters = dict(zip(kept, named, strict=True))
    single = [axis for axis in range(ndim) if axis not in letters]
    if "C" not in named and single:
        letters[single[-1]] = "C"
    for axis in itertools.islice(single, len(single)):
        letters.setdefault(axis, "N")
    text = "".join(letters[axis] for axis in range(ndim))
    return text if text.count("N") <= 1 else ""
