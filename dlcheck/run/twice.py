"""The same sample drawn again and again: what differs, by how much, and from which step on."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from dlcheck.observation import Repeat, SampleId, State, Step

DRAWS = 8
TRACED = 6
SECONDS = 4.0
MOST_SAMPLES = 4
MOST_ELEMENTS = 1 << 22
DEEPEST = 5
CLOSE = 1e-5
Trace = Callable[[Callable[[], Any]], Any]


def repeats(
    samples: Iterable[SampleId],
    draw: Callable[[SampleId], Any],
    trace: Trace,
    names: tuple[str, ...],
) -> list[Repeat]:
    """Draw each sample until it comes out otherwise, `DRAWS` times at most.

    `trace` runs a function under the tracer. Samples that raise are left out.
    """
    deadline = time.monotonic() + SECONDS
    found: list[Repeat] = []
    for sample in list(samples)[:MOST_SAMPLES]:
        if time.monotonic() > deadline:
            break
        with contextlib.suppress(Exception):
            found += _repeat(sample, draw, deadline, names)
    told = next((one for one in found if one.fields), None)
    if told is None:
        return found
    step = _parting_step(functools.partial(draw, told.sample), trace, told.fields)
    return [dataclasses.replace(one, step=step) if one is told else one for one in found]


def _repeat(
    sample: SampleId, draw: Callable[[SampleId], Any], deadline: float, names: tuple[str, ...]
) -> list[Repeat]:
    first = _arrays(draw(sample), names)
    for number in range(2, DRAWS + 1):
        differing = compare(first, _arrays(draw(sample), names))
        if differing or time.monotonic() > deadline or number == DRAWS:
            return [Repeat(sample, number, differing)]
    return []


def _parting_step(draw: Callable[[], Any], trace: Trace, fields: Iterable[str]) -> Step | None:
    """Trace the sample until two ways part; returns the first step that made another array.

    A step that was given the same and made something else is the random one.
    """
    first = trace(draw)
    for _ in range(TRACED):
        step = parts_at(first.steps, trace(draw).steps, set(fields))
        if step is not None:
            return step
    return None


def parts_at(one: tuple[Step, ...], other: tuple[Step, ...], fields: set[str]) -> Step | None:
    """Return the first step of `one` that leads to a field and does not stand so in `other`."""
    left = [step for step in one if fields & set(step.fields)]
    right = [step for step in other if fields & set(step.fields)]
    for number, step in enumerate(left):
        twin = right[number] if number < len(right) else None
        if twin is None or _place(step) != _place(twin):
            # The other draw passed over this stage, or this one over the other's.
            return _skipped(left[number:], right[number:]) or step
        if _looks(step.after) != _looks(twin.after):
            return step
    return right[len(left)] if len(right) > len(left) else None


def _skipped(left: list[Step], right: list[Step]) -> Step | None:
    """Return the step that one of the draws has and the other lacks."""
    if not right or _place(left[0]) in map(_place, right):
        return right[0] if right else left[0]
    return left[0]


def _place(step: Step) -> tuple[str, int, str, int | None]:
    return (step.file, step.line, step.stage, step.position)


def _looks(state: State) -> tuple[Any, ...]:
    return (state.shape, state.dtype, state.low, state.high, state.mean)


def compare(one: dict[str, Any], other: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Say per array that both have which share of its elements differs, and by how much at most."""
    found = {}
    for path, before in one.items():
        after = other.get(path)
        if after is not None and (told := _difference(before, after)):
            found[path] = told
    return found


def _difference(before: Any, after: Any) -> dict[str, float]:
    import numpy as np

    if before.shape != after.shape:
        return {"share": 1.0}
    if before.dtype.kind in "OSUVcMm" or before.size == 0 or before.size > MOST_ELEMENTS:
        return {}
    if before.dtype.kind in "bui":
        apart = before != after
    else:
        scale = CLOSE * max(float(np.nanmax(np.abs(before), initial=0.0)), CLOSE)
        apart = ~(np.abs(before - after) <= scale) & ~(np.isnan(before) & np.isnan(after))
    share = float(apart.mean())
    if not share:
        return {}
    gap = np.abs(before.astype("float64") - after.astype("float64"))[apart]
    return {"share": round(share, 6), "most": round(float(np.nanmax(gap, initial=0.0)), 6)}


def _arrays(sample: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Copy the arrays of a sample out of it, by dotted path; lone numbers are left out."""
    found: dict[str, Any] = {}
    _collect(sample, "", names, found, 0)
    return found


def _collect(
    value: Any, path: str, names: tuple[str, ...], found: dict[str, Any], depth: int
) -> None:
    array = as_array(value)
    if array is not None:
        if array.size > 1:
            found[path] = array.copy()
        return
    if depth >= DEEPEST:
        return
    prefix = f"{path}." if path else ""
    if isinstance(value, dict):
        for key, item in value.items():
            _collect(item, f"{prefix}{key}", names, found, depth + 1)
    elif isinstance(value, tuple | list):
        keys: Any = range(len(value))
        if not path and len(names) == len(value):
            keys = names
        for key, item in zip(getattr(value, "_fields", keys), value, strict=False):
            _collect(item, f"{prefix}{key}", names, found, depth + 1)


def as_array(value: Any) -> Any:
    """Return a numpy view of a tensor, an array or a picture; None for everything else."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.ndarray):
        return numpy.asarray(value)
    if torch is not None and isinstance(value, torch.Tensor):
        with torch.no_grad():
            plain = value.detach().cpu()
            if plain.dtype in (torch.bfloat16, torch.float16):
                plain = plain.float()
            return plain.as_subclass(torch.Tensor).numpy()
    if type(value).__module__.startswith("PIL."):
        return numpy.asarray(value)
    return None
