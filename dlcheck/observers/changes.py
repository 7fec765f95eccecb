"""What a stage did to the numbers, told from some of them before and after.

Nothing here knows the stage: an affine map, a wrap at 0 and 255, an id between two others are
read off the pairs of numbers, and an unclear case gives no answer.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from typing import Any

from dlcheck.observation import State

Numbers = tuple[float, ...]

EXACT = 2e-4
FEWEST = 24
MOST_CHANNELS = 16
PER_CHANNEL_AXES = 4
BYTE = 256
HALF = 128
# Share and number of pixels that must run over before it is said.
LEAST_SHARE = 5e-4
LEAST_COUNT = 3
FARTHEST = 100
WIDER = 1.3
UNLIKE = 3
FEWEST_LEVELS = 32
LEVEL_NOISE = 2
SLOPE_NOISE = 8
SURE = 0.99
LEAST_SPREAD = 1e-9
MOVED = 4


def affine(some: Any, other: Any, before: State, after: State) -> tuple[Numbers, Numbers]:
    """Solve after = scale * before + offset; empty where it is no such map or changes nothing.

    One pair for all, or one for each index of the channel axis. Where a stage also moved the
    axes, the ends and the mean of all numbers must agree.
    """
    if before.nonfinite or after.nonfinite:
        return (), ()
    if some.shape != other.shape or before.shape != after.shape:
        return _by_ends(before, after)
    x, y = some.astype("f8"), other.astype("f8")
    whole = _line(x.ravel(), y.ravel())
    if whole is None:
        return _by_channel(x, y)
    return _rounded([whole]) if _changes(*whole) else ((), ())


def _rounded(lines: list[tuple[float, float]]) -> tuple[Numbers, Numbers]:
    """Part lines into scales and offsets, without the digits that are noise."""
    scales = tuple(float(f"{scale:.6g}") for scale, _ in lines)
    return scales, tuple(round(offset, 6) + 0.0 for _, offset in lines)


def _changes(scale: float, offset: float) -> bool:
    return abs(scale - 1) > EXACT or abs(offset) > EXACT


def _line(x: Any, y: Any) -> tuple[float, float] | None:
    """Fit a line; None where a number is off it or x does not vary."""
    numpy = sys.modules["numpy"]
    if x.size < FEWEST or not (numpy.isfinite(x).all() and numpy.isfinite(y).all()):
        return None
    mean_x, mean_y = x.mean(), y.mean()
    spread = ((x - mean_x) ** 2).mean()
    if spread <= LEAST_SPREAD * max(1.0, mean_x**2):
        return None
    scale = float((((x - mean_x) * (y - mean_y)).mean()) / spread)
    offset = float(mean_y - scale * mean_x)
    reach = max(float(numpy.abs(y - mean_y).max()), abs(scale) * float(numpy.abs(x - mean_x).max()))
    off = float(numpy.abs(y - (scale * x + offset)).max())
    return (scale, offset) if scale and off <= EXACT * reach else None


def _by_channel(x: Any, y: Any) -> tuple[Numbers, Numbers]:
    """Fit a line for each index of one axis of a few."""
    numpy = sys.modules["numpy"]
    for axis, size in enumerate(x.shape[:PER_CHANNEL_AXES]):
        if not 1 < size <= MOST_CHANNELS:
            continue
        parts = zip(numpy.moveaxis(x, axis, 0), numpy.moveaxis(y, axis, 0), strict=True)
        lines = [_line(a.ravel(), b.ravel()) for a, b in parts]
        known = [line for line in lines if line is not None]
        if len(known) == size:
            return _rounded(known)
    return (), ()


def _by_ends(before: State, after: State) -> tuple[Numbers, Numbers]:
    """Read a map of all numbers off their ends and mean, when the same number of them is left."""
    if math.prod(before.shape or ()) != math.prod(after.shape or ()):
        return (), ()
    ends = (before.low, before.high, before.mean, after.low, after.high, after.mean)
    low, high, mean, new_low, new_high, new_mean = (math.nan if x is None else x for x in ends)
    spread, new_spread = high - low, new_high - new_low
    if not (spread > 0 and new_spread > 0):
        return (), ()
    scale = new_spread / spread
    offset = new_low - scale * low
    fits = abs(scale * mean + offset - new_mean) <= EXACT * new_spread
    return _rounded([(scale, offset)]) if fits and _changes(scale, offset) else ((), ())


def wraps(some: Any, other: Any, before: State) -> float:
    """Return the share of pixels that arithmetic on bytes carried past 0 or 255; 0 if unclear."""
    if some.shape != other.shape or other.dtype.name != "uint8" or some.size < FEWEST:
        return 0.0
    if some.dtype.name == "uint8":
        b, a = some.ravel().astype("i4"), other.ravel().astype("i4")
        share = max(_by_noise(b, a), _by_level(b, a))
    elif some.dtype.kind in "fi" and "H" in before.layout:
        share = _by_cast(some.ravel(), other.ravel())
    else:
        return 0.0
    return round(share, 6) if share >= LEAST_SHARE and share * some.size >= LEAST_COUNT else 0.0


def sums_over(pictures: Sequence[Any], after: Any) -> float:
    """Return the share of pixels that the sum or difference of two byte pictures carried over."""
    if after.dtype.name != "uint8":
        return 0.0
    alike = [p.astype("i4") for p in pictures if p.shape == after.shape and p.dtype.name == "uint8"]
    for first, second in itertools.permutations(alike, 2):
        for exact in (first - second, first + second):
            over = (exact < 0) | (exact >= BYTE)
            share = float(over.mean())
            if share >= LEAST_SHARE and bool((exact % BYTE == after).all()):
                return round(share, 6)
    return 0.0


def _by_cast(b: Any, a: Any) -> float:
    """Share of numbers outside of 0..255 that a cast took modulo 256.

    Noise on its own is no picture: most numbers of a picture lie inside.
    """
    numpy = sys.modules["numpy"]
    if not numpy.isfinite(b).all():
        return 0.0
    whole = numpy.trunc(b.astype("f8"))
    outside = (whole < 0) | (whole >= BYTE)
    share = float(outside.mean())
    inside = numpy.abs(whole - a)[~outside]
    taken = numpy.mod(whole[outside], BYTE) == a[outside]
    plain = 0 < share < 1 / 3 and bool((inside <= 1).mean() > SURE)
    return share if plain and bool(taken.mean() > SURE) else 0.0


def _by_noise(b: Any, a: Any) -> float:
    """Share of pixels that noise or an offset carried over: far away, yet near modulo 256.

    Pixels that were replaced (erased, pasted, moved) differ by anything; those that were carried
    over differ, modulo 256, by no more than the pixels in the middle of the range do.
    """
    numpy = sys.modules["numpy"]
    change = a - b
    near = (change + HALF) % BYTE - HALF
    over = numpy.abs(change) > HALF
    changed = change != 0
    usual = near[~over & changed & (b > HALF // 2) & (b < BYTE - HALF // 2)]
    # A drawing of a few flat colours tells nothing: black beside white may have moved.
    flat = int((numpy.bincount(b, minlength=BYTE) > 0).sum()) < FEWEST_LEVELS
    if flat or not over.any() or usual.size < FEWEST:
        return 0.0
    most = float(numpy.percentile(numpy.abs(near[changed]), 95))
    reach = min(WIDER * float(numpy.percentile(numpy.abs(usual), 99.5)), FARTHEST)
    ups, downs = over & (near > 0), over & (near < 0)
    for side, same in ((ups, usual > 0), (downs, usual < 0)):
        if side.any() and float(same.mean()) < 1 / 8:
            return 0.0
    carried = float(numpy.percentile(numpy.abs(near[over]), 90))
    if most > FARTHEST or carried > reach or changed.mean() < 1 / 4:
        return 0.0
    # Black that became white by moving or inverting is 1 away, whatever the others are.
    if float(numpy.median(numpy.abs(near[over]))) < float(numpy.median(numpy.abs(usual))) / 2:
        return 0.0
    share, wanted = float(over.mean()), _runs_over(numpy, b, usual)
    return share if wanted / UNLIKE <= share <= wanted * UNLIKE else 0.0


def _runs_over(numpy: Any, b: Any, usual: Any) -> float:
    """Share of pixels that would run over if all changed as those in the middle of the range."""
    ordered = numpy.sort(usual)
    up = 1 - numpy.searchsorted(ordered, BYTE - b, "left") / len(ordered)
    down = numpy.searchsorted(ordered, -b, "left") / len(ordered)
    return float((up + down).mean())


def _by_level(b: Any, a: Any) -> float:
    """Share of pixels past a wrap, where each grey level became one other: `x * 2`, `x + 40`."""
    numpy = sys.modules["numpy"]
    counts = numpy.bincount(b, minlength=BYTE)
    levels = numpy.flatnonzero(counts)
    if len(levels) < FEWEST_LEVELS:
        return 0.0
    sums = numpy.bincount(b, weights=a, minlength=BYTE)[levels]
    mean = sums / counts[levels]
    if float(numpy.abs(a - mean[numpy.searchsorted(levels, b)]).max()) > LEVEL_NOISE:
        return 0.0
    gaps, rises = numpy.diff(levels), numpy.diff(mean)
    slopes = rises / gaps
    slope = float(numpy.median(slopes))
    jumps = numpy.abs(rises) > HALF
    if not jumps.any() or abs(slope) < 1 / 2:
        return 0.0
    back = numpy.where(rises < 0, rises + BYTE, rises - BYTE)
    fits = numpy.abs(back - slope * gaps) <= SLOPE_NOISE
    steady = numpy.abs(slopes[~jumps] - slope) <= LEVEL_NOISE
    if not fits[jumps].all() or float(steady.mean()) < 1 - 1 / 16:
        return 0.0
    laps = numpy.concatenate([[0], numpy.cumsum(jumps)])
    each = numpy.bincount(laps, weights=counts[levels])
    return float(1 - each.max() / each.sum())


def invented(before: Any, after: Any) -> float:
    """Return the share of a resized label map's pixels with an id between those near their place.

    0 where the maps are not the same view at two sizes, as after a crop or a flip.
    """
    numpy = sys.modules["numpy"]
    if before.shape == after.shape or min(*before.shape, *after.shape) < FEWEST // 3:
        return 0.0
    ratios = [b / a for b, a in zip(before.shape, after.shape, strict=True)]
    if abs(math.log(ratios[0] / ratios[1])) > math.log(2):
        return 0.0
    rows = _windows(numpy, before.shape[0], after.shape[0])
    columns = _windows(numpy, before.shape[1], after.shape[1])
    nearest = before[numpy.ix_(rows[0], columns[0])]
    if float((nearest != after).mean()) > 1 / 4:
        return 0.0
    found = numpy.zeros(after.shape, bool)
    least, most = numpy.full(after.shape, numpy.inf), numpy.full(after.shape, -numpy.inf)
    for value in numpy.unique(before):
        here = _counted(numpy, before == value, rows, columns) > 0
        found |= here & (after == value)
        least[here] = numpy.minimum(least[here], value)
        most[here] = numpy.maximum(most[here], value)
    between = ~found & (least < after) & (after < most)
    # An id from elsewhere, which lies between no neighbours, comes of a crop or a flip.
    moved = float((~found & ~between).mean())
    share = float(between.mean())
    return round(share, 6) if share > MOVED * moved else 0.0


def _windows(numpy: Any, many: int, few: int) -> tuple[Any, Any, Any]:
    """For each place of the new map: its centre in the old one, and the window around it."""
    reach = max(1.5 * many / few, 1.5)
    centre = (numpy.arange(few) + 0.5) * many / few - 0.5
    low = numpy.clip(numpy.floor(centre - reach), 0, many - 1).astype(int)
    high = numpy.clip(numpy.ceil(centre + reach), 0, many - 1).astype(int) + 1
    return numpy.clip(numpy.rint(centre), 0, many - 1).astype(int), low, high


def _counted(numpy: Any, here: Any, rows: Any, columns: Any) -> Any:
    """Count the pixels that are `here` in the window of each place."""
    total = numpy.zeros((here.shape[0] + 1, here.shape[1] + 1), "i4")
    total[1:, 1:] = here.cumsum(0).cumsum(1)
    (_, top, bottom), (_, left, right) = rows, columns
    at = numpy.ix_
    return (
        total[at(bottom, right)] - total[at(top, right)]
        - total[at(bottom, left)] + total[at(top, left)]
    )  # fmt: skip
