"""What a collate function mixed: each row of a batch of images solved for the samples in it.

MixUp adds two samples pixel by pixel, CutMix puts a part of one into the other. The weight of the
images is then compared with that of the targets.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dlcheck.observation import Mix, SampleId
from dlcheck.observers.labels import Mixture, Target, judged
from dlcheck.observers.layout import numbers_of
from dlcheck.observers.lineage import own_items

Flat = dict[str, Any]

DEEPEST = 4
MOST_LEAVES = 64
MOST_ROWS = 16
MOST_ELEMENTS = 300_000
FEWEST_ELEMENTS = 64
MOST_TURNS = 12
FEWEST_TURNS = 1
MOST_SECONDS = 1.5
CLEAR = 0.1
ENOUGH = 3
PLANES = 3
EXACT = 2e-3
SAME = 1e-6


class Row(NamedTuple):
    """How a row of a batch was mixed: the two samples by place, the first one's share."""

    how: str
    first: int
    second: int
    weight: float
    slack: float = 0.0


class Before:
    """The samples as they were before the collate function had them."""

    def __init__(
        self, samples: Sequence[Any], ids: Sequence[SampleId], names: Sequence[str] = ()
    ) -> None:
        self.ids = tuple(ids)
        self.names = tuple(names)
        self.flat = [flat(sample) for sample in samples]
        common = set.intersection(*(set(f) for f in self.flat)) if self.flat else set()
        self.fields = [path for path in self.flat[0] if path in common] if self.flat else []

    def watched(self, again: Callable[[], Any], batch: Any) -> tuple[Mix, ...]:
        """List the mixed rows of a batch; of further ones where little was mixed in this one.

        A weight of a Beta distribution is often near 0 or 1, and many mix only now and then.
        """
        begun = time.monotonic()
        found: list[Mix] = []
        for turn in range(MOST_TURNS):
            with contextlib.suppress(Exception):
                found += self.mixes(batch if turn == 0 else again())
            told = list(filter(_clear, found))
            late = time.monotonic() - begun > MOST_SECONDS
            if late or len(told) >= ENOUGH or (turn + 1 >= FEWEST_TURNS and not self._possible()):
                break
        return tuple(sorted(found, key=_clear, reverse=True)[:MOST_ROWS])

    def _possible(self) -> bool:
        """Tell whether there are images and targets to be mixed."""
        images = any(_may_be_image(self.flat[0][path]) for path in self.fields)
        return images and bool(self._targets())

    def mixes(self, batch: Any) -> list[Mix]:
        """List the mixed rows of a batch, each with its targets; none where nothing was mixed."""
        found = flat(batch, axis=len(self.ids), names=self.names)
        mixes: list[Mix] = []
        for path, value in found.items():
            rows = self._rows(value)
            images = Mixture(path, self.ids, rows)
            rest = {p: v for p, v in found.items() if p != path}
            for target in self._targets() if images.mixed else ():
                mixes += judged(target, images, rest)
        return mixes

    def _rows(self, value: Any) -> dict[int, Row]:
        """Solve every row of an image batch; empty unless all of them are made of the samples."""
        if not _is_images(value, len(self.ids)):
            return {}
        for path in self.fields:
            own = [f[path] for f in self.flat]
            if all(getattr(x, "shape", None) == value.shape[1:] for x in own):
                rows = {}
                for number, row in enumerate(value):
                    made = solved(number, row, own)
                    if made is None:
                        break
                    rows[number] = made
                else:
                    return rows
        return {}

    def _targets(self) -> list[Target]:
        """Find what may be a target: a number or a short vector a sample, that differs."""
        found = []
        for path in self.fields:
            values = [f[path] for f in self.flat]
            target = Target.of(path, values)
            if target is not None:
                found.append(target)
        return found


def flat(value: Any, axis: int = 0, names: Sequence[str] = ()) -> Flat:
    """List a sample's or batch's arrays and numbers by path, as copies.

    With `axis`, a list of as many plain numbers or arrays of one shape is one array.
    """
    out: Flat = {}
    _flatten(value, "", axis, 0, out)
    if isinstance(value, list | tuple) and len(names) == len(value):
        parts = {path: path.split(".", 1) for path in out}
        return {".".join([names[int(p[0])], *p[1:]]): out[path] for path, p in parts.items()}
    return out


def _flatten(value: Any, path: str, axis: int, depth: int, out: Flat) -> None:
    numpy = sys.modules["numpy"]
    if len(out) >= MOST_LEAVES or depth > DEEPEST:
        return
    if isinstance(value, bool | int | float):
        out[path] = numpy.asarray(value)
        return
    items = own_items(value, type(value))
    if items is None:
        array = numbers_of(value) if hasattr(value, "shape") else None
        if array is not None:
            out[path] = array.copy()
        return
    if axis and len(items) == axis and isinstance(value, list | tuple):
        joined = _joined([item for _, item in items])
        if joined is not None:
            out[path] = joined
            return
    for key, item in items:
        _flatten(item, f"{path}.{key}" if path else key, axis, depth + 1, out)


def _joined(items: list[Any]) -> Any:
    """Join numbers, or arrays of one shape, of a list as long as the batch."""
    numpy = sys.modules["numpy"]
    if all(isinstance(item, int | float) for item in items):
        return numpy.asarray(items)
    arrays = [numbers_of(item) if hasattr(item, "shape") else None for item in items]
    shapes = {None if a is None else a.shape for a in arrays}
    return numpy.stack(arrays) if len(shapes) == 1 and None not in shapes else None


def _clear(mix: Mix) -> bool:
    """Tell a row that shows how its labels were mixed from one that is nearly a sample."""
    return mix.telling and CLEAR <= mix.weight <= 1 - CLEAR


def _may_be_image(value: Any) -> bool:
    return value.dtype.kind in "fu" and value.size >= FEWEST_ELEMENTS


def _is_images(value: Any, many: int) -> bool:
    return value.ndim > 1 and value.shape[0] == many and _may_be_image(value[0])


def solved(number: int, row: Any, own: Sequence[Any]) -> Row | None:
    """Find the one or two samples that a row is made of; None where it is something else."""
    numpy = sys.modules["numpy"]
    y = _line(row)
    xs = [_line(x) for x in own]
    reach = float(max(numpy.abs(y - y.mean()).max(), SAME))
    order = sorted(range(len(xs)), key=lambda j: (j != number, j))
    for j in order:
        if _off(numpy, y, [xs[j]])[0] <= EXACT * reach:
            return Row("pure", j, j, 1.0)
    pairs = [(i, j) for n, i in enumerate(order) for j in order[n + 1 :]]
    for i, j in pairs:
        off, factors = _off(numpy, y, [xs[i], xs[j]])
        total = sum(factors[:2])
        if off <= EXACT * reach and total > 0 and min(factors[:2]) >= -SAME:
            return _ordered(number, Row("mixup", i, j, float(factors[0] / total)))
    for i, j in pairs:
        found = _cut(numpy, row, own[i], own[j])
        if found is not None:
            return _ordered(number, Row("cutmix", i, j, *found))
    return None


def _ordered(number: int, row: Row) -> Row:
    """Put the sample of the row's own place first; else the one with the larger share."""
    swap = row.second == number or (row.first != number and row.weight < 1 / 2)
    return Row(row.how, row.second, row.first, 1 - row.weight, row.slack) if swap else row


def _line(array: Any) -> Any:
    """Take one channel: what is done to a channel after mixing is then one line for all of it."""
    part = array[0] if array.ndim == PLANES else array
    step = max(1, part.size // MOST_ELEMENTS)
    return part.astype("f8").ravel()[::step]


def _off(numpy: Any, y: Any, xs: list[Any]) -> tuple[float, list[float]]:
    """Fit y = sum of factor * x + constant; returns the largest error and the factors."""
    mean_y = y.mean()
    centred = [x - x.mean() for x in xs]
    matrix = numpy.stack([[float(a @ b) for b in centred] for a in centred])
    right = [float(a @ (y - mean_y)) for a in centred]
    size = float(numpy.abs(matrix).max())
    if size <= SAME or abs(float(numpy.linalg.det(matrix / size))) <= SAME:
        return math.inf, [0.0] * len(xs)
    factors = numpy.linalg.solve(matrix, right)
    rest = y - mean_y - sum(f * a for f, a in zip(factors, centred, strict=True))
    return float(numpy.abs(rest).max()), [float(f) for f in factors]


def _cut(numpy: Any, row: Any, one: Any, other: Any) -> tuple[float, float] | None:
    """Read a row as part of one and part of another; (share of the first, what is unsure)."""
    y, a, b = (x.astype("f8") for x in (row, one, other))
    close = EXACT * float(max(numpy.abs(y).max(), SAME))
    from_a, from_b = numpy.abs(y - a) <= close, numpy.abs(y - b) <= close
    if not bool((from_a | from_b).all()):
        return None
    sure_a, sure_b = from_a & ~from_b, from_b & ~from_a
    known = float(sure_a.sum() + sure_b.sum())
    if not known or not sure_a.any() or not sure_b.any():
        return None
    unsure = float((from_a & from_b).mean())
    return float(sure_a.sum()) / known, unsure
