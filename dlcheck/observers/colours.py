"""Compare a finished picture's channels with those of its file: R,G,B kept, or B,G,R.

A sample is a crop, flipped, resized, jittered and normalised channel by channel. The middle
channel is green in both orders: it finds the crop. There, what the outer channels hold beyond
green is compared with what red and blue hold beyond green, by correlation, which no brightness,
contrast or normalisation changes.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from dlcheck.observers.layout import numbers_of

SIDE = 24
SMALLEST = 12
FILE_SIDE = 128
SCALES = (1.0, 0.93, 0.86, 0.8, 0.73, 0.66, 0.6, 0.54, 0.48, 0.42, 0.37, 0.32, 0.28)
# Half of what a change of aspect does to each side, tried around the best scales.
RATIOS = (0.94, 1.07, 0.88, 1.14)
REFINED = 3
# Found so well, the search for a better crop ends; found worse than FOUND, it has failed.
SURE = 0.97
FOUND = 0.85
COLOURED = 0.05
WINNER = 0.6
MARGIN = 0.3
APART = 0.6
COLOURS = 3


def colour_of(field_array: Any, file_rgb: Any, layout: str) -> dict[str, float]:
    """Correlate channels with the file's in both orders; empty when that does not tell.

    `layout` names the field's axes (CHW, HWC, HCW); `file_rgb` is the file as H,W,3.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or sorted(layout) != ["C", "H", "W"] or file_rgb is None:
        return {}
    try:
        with numpy.errstate(all="ignore"):
            return _compared(numpy, field_array, file_rgb, layout)
    except Exception:  # noqa: BLE001 - what a user's field is made of may refuse anything
        return {}


def _compared(numpy: Any, field_array: Any, file_rgb: Any, layout: str) -> dict[str, float]:
    field = numbers_of(field_array).transpose([layout.index(axis) for axis in "HWC"])
    file = numpy.asarray(file_rgb)
    if field.shape[2] not in (COLOURS, COLOURS + 1) or file.shape[2] != COLOURS:
        return {}
    field = field[..., :COLOURS].astype("f4")
    if min(*field.shape[:2], *file.shape[:2]) < SMALLEST or not numpy.isfinite(field).all():
        return {}
    small = _shrunk(numpy, field, SIDE)
    if not _coloured(small):
        return {}
    found = _found(numpy, small, _shrunk(numpy, file.astype("f4"), FILE_SIDE))
    return {} if found is None else _orders(numpy, *found)


def _shrunk(numpy: Any, picture: Any, side: int) -> Any:
    """Reduce a picture to a longest side."""
    scale = min(1.0, side / max(picture.shape[:2]))
    height, width = (max(SMALLEST, round(length * scale)) for length in picture.shape[:2])
    return _resized(numpy, picture, height, width)


def _resized(numpy: Any, picture: Any, height: int, width: int) -> Any:
    """Average H,W,C over boxes down to a height and width, or repeat pixels up to it."""
    for axis, size in enumerate((height, width)):
        edges = numpy.linspace(0, picture.shape[axis], size + 1).astype(int)
        counts = numpy.maximum(1, numpy.diff(edges)).reshape([-1, 1, 1] if axis == 0 else [-1, 1])
        picture = numpy.add.reduceat(picture, edges[:-1], axis=axis) / counts
    return picture


def _coloured(picture: Any) -> bool:
    """Whether red and blue hold enough that green does not."""
    rest = [_beyond(picture[..., k], picture[..., 1]) for k in (0, 2)]
    return all(
        part.std() > COLOURED * picture[..., k].std() for k, part in zip((0, 2), rest, strict=True)
    )


def _beyond(channel: Any, green: Any) -> Any:
    """Take from a channel the part that follows green."""
    one, two = channel - channel.mean(), green - green.mean()
    return one - two * (float((one * two).sum()) / max(1e-12, float((two * two).sum())))


def _found(numpy: Any, small: Any, file: Any) -> tuple[Any, Any] | None:
    """Find the part of the file that a small picture shows: both, side by side."""
    upright = (small, small[:, ::-1])
    over = (small[::-1], small[::-1, ::-1])
    turned = (numpy.rot90(small), numpy.rot90(small, 3))
    for views in (upright, over, turned):
        height, width = views[0].shape[:2]
        tries = [_fit(numpy, views, file, file.shape[0] / height, file.shape[1] / width)]
        whole = min(file.shape[0] / height, file.shape[1] / width)
        tries += [_fit(numpy, views, file, scale * whole, scale * whole) for scale in SCALES]
        if max(fit.score for fit in tries) < SURE:
            for near in sorted(tries[1:], key=lambda fit: -fit.score)[:REFINED]:
                for ratio in RATIOS:
                    tries.append(_fit(numpy, views, file, near.tall * ratio, near.wide / ratio))
        best = max(tries, key=lambda fit: fit.score)
        if best.score > FOUND:
            return best.view, best.part
    return None


class _Fit(NamedTuple):
    """Where a view of the field fits best, one of its pixels being tall x wide of the file."""

    score: float
    tall: float
    wide: float
    view: Any
    part: Any


def _fit(numpy: Any, views: tuple[Any, ...], file: Any, tall: float, wide: float) -> _Fit:
    """Scale the file and find the view and the place that fit best."""
    rows, columns = views[0].shape[:2]
    height, width = round(file.shape[0] / tall), round(file.shape[1] / wide)
    if height < rows or width < columns:
        return _Fit(-1.0, tall, wide, None, None)
    scaled = _resized(numpy, file, height, width)
    matches = [(*_match(numpy, view[..., 1], scaled[..., 1]), view) for view in views]
    score, top, left, view = max(matches, key=lambda match: match[0])
    return _Fit(score, tall, wide, view, scaled[top : top + rows, left : left + columns])


def _match(numpy: Any, small: Any, large: Any) -> tuple[float, int, int]:
    """Find where a plane fits best into a larger one: normalised correlation, row, column."""
    rows, columns = small.shape
    height, width = large.shape
    part = small - small.mean()
    whole = large - large.mean()
    size = (height + rows, width + columns)
    product = numpy.fft.rfft2(whole, size) * numpy.conj(numpy.fft.rfft2(part, size))
    cross = numpy.fft.irfft2(product, size)[: height - rows + 1, : width - columns + 1]
    total, squares = (_sums(numpy, plane, rows, columns) for plane in (whole, whole * whole))
    energy = numpy.maximum(squares - total * total / part.size, 1e-6 * float(squares.max()) + 1e-12)
    score = cross / numpy.sqrt(energy * max(1e-12, float((part * part).sum())))
    at = int(score.argmax())
    return float(score.flat[at]), at // score.shape[1], at % score.shape[1]


def _sums(numpy: Any, plane: Any, rows: int, columns: int) -> Any:
    """Sum over every window of rows x columns."""
    table = numpy.pad(plane.astype("f8").cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    lower, upper = table[rows:], table[:-rows]
    return lower[:, columns:] - lower[:, :-columns] - upper[:, columns:] + upper[:, :-columns]


def _orders(numpy: Any, field: Any, file: Any) -> dict[str, float]:
    """Correlate with red and blue as they stand and exchanged, all beyond green."""
    if not _coloured(file):
        return {}
    first, last = (_beyond(field[..., k], field[..., 1]) for k in (0, 2))
    red, blue = (_beyond(file[..., k], file[..., 1]) for k in (0, 2))
    rgb = (_correlation(numpy, first, red) + _correlation(numpy, last, blue)) / 2
    bgr = (_correlation(numpy, first, blue) + _correlation(numpy, last, red)) / 2
    apart = _correlation(
        numpy,
        _standard(field[..., 0]) - _standard(field[..., 2]),
        _standard(file[..., 0]) - _standard(file[..., 2]),
    )
    told = max(rgb, bgr) > WINNER and abs(rgb - bgr) > MARGIN and abs(apart) > APART
    if not told or (rgb > bgr) != (apart > 0):
        return {}
    return {"rgb": round(rgb, 3), "bgr": round(bgr, 3)}


def _standard(plane: Any) -> Any:
    return (plane - plane.mean()) / max(1e-12, float(plane.std()))


def _correlation(numpy: Any, one: Any, two: Any) -> float:
    value = float((_standard(one) * _standard(two)).mean())
    return value if numpy.isfinite(value) else 0.0
