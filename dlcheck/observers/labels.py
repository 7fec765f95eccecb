"""Targets of a mixed batch, compared with how the images were mixed."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dlcheck.observation import Mix, SampleId

MOST_CLASSES = 22_000
FEWEST_CLASSES = 2
CLOSE = 2e-3
LOOSE = 0.02
ONE = 1e-3
WRONG = 0.2
MOST_MIXED = 3
LEAST_KEPT = 0.7


@dataclasses.dataclass(frozen=True)
class Target:
    """A target of the samples, one row each: class numbers (`hard`) or vectors of classes."""

    path: str
    rows: Any
    hard: bool

    @classmethod
    def of(cls, path: str, values: Sequence[Any]) -> Target | None:
        """Read a field as a target; None where it is none or all samples have the same."""
        numpy = sys.modules["numpy"]
        shapes = {v.shape for v in values}
        if len(shapes) != 1 or not all(v.dtype.kind in "iufb" for v in values):
            return None
        shape = shapes.pop()
        table = numpy.stack([v.astype("f8").ravel() for v in values])
        whole = all(v.dtype.kind in "iub" for v in values)
        if bool((table == table[0]).all()) or not bool(numpy.isfinite(table).all()):
            return None
        if whole and shape in ((), (1,)) and float(table.min()) >= 0:
            return cls(path, table[:, 0], hard=True)
        vector = len(shape) == 1 and FEWEST_CLASSES <= shape[0] <= MOST_CLASSES
        return cls(path, table, hard=False) if vector and _are_labels(table) else None


def _are_labels(table: Any) -> bool:
    """Tell labels, which share a sum or are zeros and ones, from other vectors."""
    numpy = sys.modules["numpy"]
    inside = float(table.min()) >= -CLOSE and float(table.max()) <= 1 + CLOSE
    sums = table.sum(axis=1)
    alike = float(numpy.abs(sums - 1).max()) <= WRONG and float(numpy.ptp(sums)) <= ONE
    return inside and (alike or bool(numpy.isin(table, (0, 1)).all()))


class Mixture(NamedTuple):
    """The images of a batch: their field, the samples' ids, and each row solved."""

    field: str
    ids: tuple[SampleId, ...]
    rows: Mapping[int, Any]

    @property
    def mixed(self) -> dict[int, Any]:
        """The rows that are made of two samples."""
        return {number: row for number, row in self.rows.items() if row.how != "pure"}

    def mix(self, number: int, path: str, how: str) -> Mix:
        """Write down a row and the target it is compared with."""
        row = self.rows[number]
        of = (self.ids[row.first], self.ids[row.second])
        return Mix(self.field, number, row.how, of, round(row.weight, 4), path, how)


def judged(target: Target, images: Mixture, batch: Mapping[str, Any]) -> list[Mix]:
    """Compare every mixed row with what became of a target in the batch."""
    told: list[Mix] = []
    for path, value in batch.items():
        if value.shape[:1] != (len(images.rows),):
            continue
        if target.hard and _kept(target, value):
            rest = [other for name, other in batch.items() if name != path]
            carried = any(_carries(target, other, images.mixed) for other in rest)
            told += _hard(target, images, path, carried=carried)
        elif value.ndim == FEWEST_CLASSES and _classes(target, value):
            told += _soft(target, images, path, value)
    return told


def _kept(target: Target, value: Any) -> bool:
    flat = value.reshape(len(value), -1)
    whole = value.dtype.kind in "iub"
    return flat.shape[1] == 1 and whole and bool((flat[:, 0] == target.rows).all())


def _carries(target: Target, value: Any, mixed: Mapping[int, Any]) -> bool:
    """Tell whether an entry of the batch holds the other labels, the other samples or the share."""
    if value.size == 1:
        number = float(value.ravel()[0])
        shares = [share for row in mixed.values() for share in (row.weight, 1 - row.weight)]
        return any(abs(number - share) <= LOOSE for share in shares)
    if value.shape[0] != len(target.rows) or value.size != value.shape[0]:
        return False
    flat = value.ravel().astype("f8")
    others = all(flat[r] == target.rows[row.second] for r, row in mixed.items())
    places = all(flat[r] == row.second for r, row in mixed.items())
    shares_fit = all(
        min(abs(flat[r] - row.weight), abs(flat[r] - 1 + row.weight)) <= LOOSE
        for r, row in mixed.items()
    )
    return (others and not _kept(target, value)) or places or shares_fit


def _hard(target: Target, images: Mixture, path: str, *, carried: bool) -> list[Mix]:
    return [
        dataclasses.replace(
            images.mix(number, path, "kept"),
            carried=carried,
            telling=bool(target.rows[row.first] != target.rows[row.second]),
        )
        for number, row in images.mixed.items()
    ]


def _classes(target: Target, value: Any) -> bool:
    """Tell whether the rows of a batch may be the target as vectors of classes.

    Of a mixed row two classes or three stand out, the others lie on one level.
    """
    numpy = sys.modules["numpy"]
    if value.dtype.kind != "f" or value.shape[1] < FEWEST_CLASSES:
        return False
    if not target.hard:
        return bool(target.rows.shape[1] == value.shape[1])
    rows = numpy.sort(value.astype("f8"), axis=1)
    rest = rows[:, : max(value.shape[1] - FEWEST_CLASSES, 1)]
    level = float(numpy.ptp(rest, axis=1).max()) <= CLOSE
    inside = float(rows.min()) >= -CLOSE and float(rows.max()) <= FEWEST_CLASSES
    few = value.shape[1] > FEWEST_CLASSES or float(numpy.abs(rows.sum(axis=1) - 1).max()) <= ONE
    return level and inside and few and bool(target.rows.max() < value.shape[1])


def _soft(target: Target, images: Mixture, path: str, value: Any) -> list[Mix]:
    numpy = sys.modules["numpy"]
    table = _vectors(numpy, target, value.shape[1])
    if target.hard:
        keep = _smoothing(numpy, {r: _said(table, row) for r, row in images.rows.items()}, value)
        table = keep * table + (1 - keep) / value.shape[1]
    told = []
    for number, row in images.mixed.items():
        y = value[number].astype("f8")
        weight, other = _found(numpy, y, table, row)
        off = float(numpy.abs(y - _said(table, row)).max())
        told.append(
            dataclasses.replace(
                images.mix(number, path, "soft"),
                target_of=() if other is None else (images.ids[row.first], images.ids[other]),
                target_weight=None if weight is None else round(weight, 4),
                off=round(max(off - row.slack, 0.0), 4),
                total=round(float(y.sum()), 4),
                total_before=round(float(table[row.first].sum()), 4),
                telling=bool(numpy.abs(table[row.first] - table[row.second]).max() > LOOSE),
            )
        )
    return told


def _said(table: Any, row: Any) -> Any:
    """Mix the labels of two samples as their images are mixed."""
    return row.weight * table[row.first] + (1 - row.weight) * table[row.second]


def _vectors(numpy: Any, target: Target, classes: int) -> Any:
    return numpy.eye(classes)[target.rows.astype(int)] if target.hard else target.rows


def _smoothing(numpy: Any, wanted: Mapping[int, Any], value: Any) -> float:
    """Find the share of one-hot labels that label smoothing kept; 1 where it fits no row better."""
    classes = value.shape[1]
    x = numpy.stack([said - 1 / classes for said in wanted.values()]).ravel()
    y = numpy.stack([value[r].astype("f8") - 1 / classes for r in wanted]).ravel()
    keep = float(x @ y / (x @ x)) if float(x @ x) else 1.0
    fits = float(numpy.abs(y - keep * x).max()) <= LOOSE
    if not fits:
        # Rows mixed otherwise than the images: their lowest entries still show the smoothing.
        lowest = numpy.sort(value.astype("f8"), axis=1)[:, 0] if classes > MOST_MIXED else [0.0]
        keep = 1 - float(numpy.median(lowest)) * classes
    return min(keep, 1.0) if keep >= LEAST_KEPT else 1.0


def _found(numpy: Any, y: Any, table: Any, row: Any) -> tuple[float | None, int | None]:
    """Solve a row of the target for its own sample and whichever other."""
    first = table[row.first]
    order = [row.second, *(j for j in range(len(table)) if j not in (row.first, row.second))]
    best: tuple[float, float, int] | None = None
    for j in order:
        d = first - table[j]
        if float(numpy.abs(d).max()) <= LOOSE:
            continue
        weight = float((y - table[j]) @ d / (d @ d))
        off = float(numpy.abs(y - weight * first - (1 - weight) * table[j]).max())
        if off <= LOOSE and (best is None or off < best[0] - CLOSE):
            best = (off, weight, j)
    return (None, None) if best is None else (best[1], best[2])
