"""Some numbers of every array on a sample's way, kept to compare what stood before and after."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from dlcheck.observation import Opened, State, Step
from dlcheck.observers.axes import thinned
from dlcheck.observers.changes import affine, invented, sums_over, wraps
from dlcheck.observers.layout import numbers_of, state_of

MOST_KEPT = 2_000
MOST_PLANES = 96
MOST_ELEMENTS = 4_096
FEWEST_ELEMENTS = 64
MOST_IDS = 24
MOST_PLANE = 1_500_000
FLAT = 2
BYTE = 256
# Sums of the same numbers in another order differ by no more.
SAME = 1e-9
PLAIN_MODES = ("1", "L", "P", "I")


@dataclasses.dataclass(frozen=True)
class _Kept:
    """A State with some of its array's numbers; of a label map all of them."""

    state: State
    some: Any
    plane: Any = None
    picture: Any = None


class Pixels:
    """Describes arrays for a Tracer, and compares them once it is done. One for each run."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        self._planes = 0

    def state(self, value: Any) -> State | None:
        """Describe an array as `state_of` does, with its ids."""
        state = state_of(value)
        if state is None or state.shape is None or len(self._kept) >= MOST_KEPT:
            return state
        array = numbers_of(value)
        if array is None:
            if getattr(value, "mode", "") in PLAIN_MODES:
                self._kept[id(state)] = _Kept(state, None, picture=value)
            return state
        if array.size < FEWEST_ELEMENTS or array.shape != state.shape:
            return state
        kept = self._keep(state, array)
        self._kept[id(kept.state)] = kept
        return kept.state

    def _keep(self, state: State, array: Any) -> _Kept:
        """Copy some of the numbers: the array may change in place."""
        some = thinned(array, -1, MOST_ELEMENTS).copy()
        ids = ids_of(array, some)
        plane = None
        if ids and self._planes < MOST_PLANES and array.size <= MOST_PLANE:
            plane = _plane(array)
            self._planes += plane is not None
        return _Kept(dataclasses.replace(state, ids=ids, std=_std(array)), some, plane)

    def told(
        self,
        steps: Sequence[Step],
        opened: Sequence[Opened] = (),
        read: Callable[[str], Any] = lambda _: None,
    ) -> tuple[Step, ...]:
        """Add to each step what the arrays before and after it tell.

        A line that reads a file and goes on with it, `Image.open(path).resize(size)`, leaves no
        array before: then it is what `read` finds in the file.
        """
        known = [self._from_file(step, opened, read) for step in steps]
        return tuple(self._told(step, [known[n].after for n in step.sources]) for step in known)

    def _from_file(self, step: Step, opened: Sequence[Opened], read: Callable[[str], Any]) -> Step:
        paths = {o.path: o.by for o in opened if (o.file, o.line) == (step.file, step.line)}
        if step.before is not None or len(paths) != 1 or len(self._kept) >= MOST_KEPT:
            return step
        path, by = next(iter(paths.items()))
        array = None if step.stage.endswith(by.rpartition(".")[2]) else read(path)
        if array is None or array.size < FEWEST_ELEMENTS:
            return step
        state = self.state(array)
        return step if state is None else dataclasses.replace(step, before=state)

    def _told(self, step: Step, read: Sequence[State]) -> Step:
        after = self._kept.get(id(step.after))
        if after is None or after.some is None:
            return step
        others = [self._decoded(self._kept.get(id(state))) for state in (step.before, *read)]
        found = [one for one in others if one is not None and one.some is not None]
        changed = [one for one in found if not _moved(one.state, after.state)]
        runs_over = max((wraps(o.some, after.some, o.state) for o in changed), default=0.0)
        pictures = [one.some for one in found if "H" in one.state.layout]
        runs_over = runs_over or sums_over(pictures, after.some)
        before = others[0]
        if before is None or before.some is None:
            return dataclasses.replace(step, wraps=runs_over)
        scale, offset = affine(before.some, after.some, before.state, after.state)
        facts: dict[str, Any] = {"before": before.state, "scale": scale, "offset": offset}
        facts["wraps"] = runs_over
        if before.plane is not None and after.plane is not None:
            facts["invented"] = invented(before.plane, after.plane)
        return dataclasses.replace(step, **facts)

    def _decoded(self, kept: _Kept | None) -> _Kept | None:
        """Read a picture that was not decoded yet when it was described."""
        if kept is None or kept.picture is None:
            return kept
        array = numbers_of(kept.picture)
        if array is None or array.shape != kept.state.shape or array.size < FEWEST_ELEMENTS:
            return None
        low, high, mean = float(array.min()), float(array.max()), float(array.mean(dtype="f8"))
        state = dataclasses.replace(kept.state, low=low, high=high, mean=mean)
        return self._keep(state, array)


def ids_of(array: Any, some: Any) -> tuple[float, ...]:
    """List the values of an array, in order; empty for one value or more than 24."""
    numpy = sys.modules["numpy"]
    if some.dtype.kind == "b":
        some = some.view("u1")
    if array.dtype.kind == "b":
        array = array.view("u1")
    if array.dtype.kind == "f" and not bool(numpy.isfinite(array).all()):
        return ()
    if len(numpy.unique(some)) > MOST_IDS:
        return ()
    if array.dtype == numpy.uint8:
        found = numpy.flatnonzero(numpy.bincount(array.ravel(), minlength=BYTE))
    else:
        found = numpy.unique(array)
    return tuple(float(x) for x in found) if FLAT <= len(found) <= MOST_IDS else ()


def _std(array: Any) -> float | None:
    """Take the deviation of all numbers, which tells a mixture of two from either."""
    numpy = sys.modules["numpy"]
    with numpy.errstate(all="ignore"):
        std = float(array.std(dtype="f8"))
    return std if math.isfinite(std) else None


def _moved(before: State, after: State) -> bool:
    """Tell a flip, a roll or a turn: the same numbers at other places."""
    if math.prod(before.shape or ()) != math.prod(after.shape or ()):
        return False
    facts = [(s.low, s.high, s.mean, s.std) for s in (before, after)]
    pairs = [(a, b) for a, b in zip(*facts, strict=True) if a is not None and b is not None]
    return len(pairs) == len(facts[0]) and all(math.isclose(a, b, rel_tol=SAME) for a, b in pairs)


def _plane(array: Any) -> Any:
    """Copy a label map: two axes, others of size one left out; None for other arrays."""
    numpy = sys.modules["numpy"]
    flat = numpy.squeeze(array)
    return flat.astype("f4") if flat.ndim == FLAT else None
