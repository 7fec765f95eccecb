"""The gradients of an optimizer's parameters, before and after each backward and step.

A few parameters stand for all; how gradients are cleared (zero_grad, None, a new tensor) does not
matter, since they are looked at, not the calls.
"""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from dlcheck.observation.steps import Line, Optimizer
from dlcheck.observers.storing import around

MOST_PARAMETERS = 12
MOST_VALUES = 4096
KEPT_VALUES = 16
MOST_NORMS = 32
ENOUGH = 3


@dataclass(frozen=True, eq=False)
class Mark:
    """One state of one gradient. An id alone would be given to the next tensor too."""

    ref: weakref.ref[Any]
    version: int

    def same(self, other: Mark | None) -> bool:
        """Tell whether nothing was added or put in its place."""
        return other is not None and self.ref is other.ref and self.version == other.version


class Followed:
    """One optimizer and the gradients of some of its parameters."""

    def __init__(self, optimizer: Any, name: str) -> None:
        self.optimizer = weakref.ref(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        stride = max(1, -(-len(parameters) // MOST_PARAMETERS))
        self.sampled = [weakref.ref(p) for p in parameters[::stride]]
        self.name = name
        self.cls = type(optimizer).__name__
        self.parameters = len(parameters)
        self.steps = self.later = 0
        self.stale = self.empty = self.cleared = self.reached = self.felt = 0
        self.norms: list[float] = []
        self.at_first = self.values()
        self.used: dict[int, Mark] = {}
        self.held: dict[int, Mark] = {}
        self.known: dict[int, Mark] = {}
        self.carried = False
        self.places: set[tuple[str, int]] = set()
        self.stepped: Line | None = None
        self.backward: Line | None = None

    def gradients(self) -> dict[int, Any]:
        """Return the gradients that there are, by the number of the parameter."""
        found = {}
        for number, ref in enumerate(self.sampled):
            parameter = ref()
            grad = getattr(parameter, "grad", None)
            if grad is not None:
                found[number] = grad
        return found

    def values(self) -> list[float]:
        """Return some of the parameters' values, to tell later whether they moved."""
        found: list[float] = []
        for ref in self.sampled:
            parameter = ref()
            if parameter is not None:
                found += _flat(parameter)[:KEPT_VALUES].tolist()
        return found

    def before_backward(self) -> None:
        """Tell gradients that a step has used from those that were cleared since."""
        grads = self.gradients()
        full = {n: _mark(g) for n, g in grads.items() if not _is_zero(g)}
        if (self.used or self.carried) and not full:
            self.cleared += 1
            self.used, self.carried = {}, False
        self.held = {n: mark for n, mark in full.items() if n in self.used}
        self.known = {n: _mark(g) for n, g in grads.items()}

    def after_backward(self, line: Line | None, places: Collection[tuple[str, int]]) -> None:
        """Note whether this backward added to gradients that were used already."""
        grads = self.gradients()
        now = {n: _mark(g) for n, g in grads.items()}
        if any(not mark.same(self.known.get(n)) for n, mark in now.items()):
            self.reached += 1
            self.backward = line
            self.places.update(places)
            if self.felt < ENOUGH:
                self.felt += any(not _is_zero(g) for g in grads.values())
        if any(n in now and not mark.same(now[n]) for n, mark in self.held.items()):
            self.carried = True

    def step(self, line: Line | None) -> None:
        """Judge the gradients that a step has just used."""
        grads = self.gradients()
        marks = {n: _mark(g) for n, g in grads.items()}
        fresh = any(not mark.same(self.used.get(n)) for n, mark in marks.items())
        full = any(not _is_zero(g) for g in grads.values())
        self.steps += 1
        self.stepped = line or self.stepped
        self.empty += not full
        self.stale += full and (self.carried or not fresh)
        if len(self.norms) < MOST_NORMS:
            self.norms.append(_norm(list(grads.values())))
        self.used = marks if full else {}

    def told(self) -> Optimizer:
        """Return what was seen as plain data."""
        moved = bool(self.at_first) and self.values() != self.at_first
        return Optimizer(
            name=self.name, cls=self.cls, parameters=self.parameters, steps=self.steps,
            later=self.later, stale=self.stale, empty=self.empty, cleared=self.cleared,
            reached=self.reached, felt=self.felt, norms=tuple(self.norms), moved=moved,
            written=self.written(), stepped=self.stepped, backward=self.backward,
        )  # fmt: skip

    def written(self) -> bool:
        """Tell whether the code around the calls of backward calls this optimizer's step."""
        bare = re.escape(self.name.rpartition(".")[2].partition("[")[0])
        calls = re.compile(
            rf"\b{bare}(\[.*?\])?\.step\(|opt(?!\w*sched)\w*\.step\(|step\([\w.]*{bare}\b"
        )
        return any(calls.search(around(*place)) for place in self.places)


def _mark(grad: Any) -> Mark:
    return Mark(weakref.ref(grad), grad._version)  # noqa: SLF001


def _flat(tensor: Any) -> Any:
    """Return at most MOST_VALUES of a tensor's values, from all over it."""
    if tensor.is_sparse:
        tensor = tensor._values()  # noqa: SLF001
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // MOST_VALUES)]


def _is_zero(grad: Any) -> bool:
    return not bool(_flat(grad).any())


def _norm(grads: list[Any]) -> float:
    total = sum(float(_flat(g).float().square().sum()) for g in grads)
    return round(math.sqrt(total), 6)
