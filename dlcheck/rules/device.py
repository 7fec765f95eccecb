"""DLC512, DLC513: memory of the accelerator, measured on one or foreseen without."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from dlcheck.findings import (
    ERROR,
    WARNING,
    Finding,
    NotApplicable,
    Unobserved,
    Where,
    rule,
)
from dlcheck.footprint import CONTEXT, largest_batch, needed
from dlcheck.observation import Allocation, Budget, Device, Failure, Observation, Reading, Split
from dlcheck.rules.room import bytes_of, size
from dlcheck.rules.words import base

WARM = 4
FEWEST = 8
# Below this a step leaves a scalar or two: a logged loss, a counter.
LEAST_PER_STEP = 2 << 10
LEAST_PER_EPOCH = 64 << 10
# A last part that grew by less than this share of the first is levelling off.
LEVELS = 0.5
FULL = re.compile(r"out of memory", re.IGNORECASE)
DEVICE_WORDS = re.compile(r"cuda|hip|gpu", re.IGNORECASE)
NO_DEVICE = "no batch was moved to a device: --device auto asks for it"


@rule(
    "DLC512",
    severity=ERROR,
    needs="run",
    title="Memory of the device grows from step to step",
    why="Live tensors pile up on the accelerator until a step fails with out of memory, often "
    "hours after the line that keeps them; emptying the cache gives none of it back.",
    fix="Keep .item() or .detach().cpu() of what is logged, and drop outputs before the next step.",
    yields_to=("graph-retained",),
)
def device_leak(obs: Observation) -> Iterator[Finding]:
    """Fire where live bytes on the device grow with each step or epoch and do not level off.

    What the caching allocator reserves may grow and level off: that is its cache, and no leak.
    Judged after the first epoch, in which optimizers and libraries make what they keep.
    """
    read = {name: split.device for name, split in obs.splits.items() if split.device}
    if not any(device.readings for device in read.values()):
        _nothing(list(read.values()))
    for name, device in read.items():
        growth = device_growth(device.readings)
        if growth is not None:
            yield _leak(name, device, growth)


def _nothing(devices: Sequence[Device]) -> None:
    """Say why no device was read: a wish for a certain one that is not there is unobserved."""
    for device in devices:
        if device.reason and device.asked.startswith("cuda"):
            raise Unobserved(device.reason)
    raise NotApplicable(next((one.reason for one in devices if one.reason), NO_DEVICE))


def device_growth(readings: Sequence[Reading]) -> dict[str, Any] | None:
    """Bytes a step, and an epoch, by which live memory grows; None where it does not."""
    epochs: dict[int, list[Reading]] = {}
    # Epochs before the first step hold neither gradients nor what the optimizer keeps.
    stepped = [reading for reading in readings if reading.stepped]
    for reading in stepped or readings:
        epochs.setdefault(reading.epoch, []).append(reading)
    ordered = [epochs[number] for number in sorted(epochs)]
    if len(ordered) > 1:
        return _between(ordered)
    return _within(ordered[0]) if ordered else None


def _between(epochs: list[list[Reading]]) -> dict[str, Any] | None:
    """Compare the ends of epochs: what is cleared at each end is no leak."""
    ends = [epoch[-1].allocated for epoch in epochs]
    gains = [later - before for before, later in itertools.pairwise(ends)]
    steps = [
        max(later[-1].batch - before[-1].batch, 1) for before, later in itertools.pairwise(epochs)
    ]
    per_step = sum(gains[-2:]) / sum(steps[-2:])
    if min(gains) < LEAST_PER_EPOCH or per_step < LEAST_PER_STEP:
        return None
    if len(gains) > 1 and gains[-1] / steps[-1] < LEVELS * gains[0] / steps[0]:
        return None
    # Between two epochs alone, the later one has to grow all along.
    if len(gains) == 1 and _within(epochs[-1], warm=0) is None and len(epochs[-1]) >= FEWEST:
        return None
    return {"per_step": per_step, "per_epoch": statistics.mean(gains), "epochs": len(epochs)}


def _within(readings: Sequence[Reading], warm: int = WARM) -> dict[str, Any] | None:
    """Compare the two halves of one epoch, its first steps left out."""
    later = readings[warm:]
    if len(later) < FEWEST:
        return None
    middle = len(later) // 2
    first, second = _slope(later[: middle + 1]), _slope(later[middle:])
    if min(first, second) < LEAST_PER_STEP or second < LEVELS * first:
        return None
    return {"per_step": (first + second) / 2, "per_epoch": None, "epochs": 1}


def _slope(readings: Sequence[Reading]) -> float:
    """Return the median of the slopes between all pairs (Theil-Sen), in bytes a step."""
    pairs = [
        (b.allocated - a.allocated) / (b.batch - a.batch)
        for i, a in enumerate(readings)
        for b in readings[i + 1 :]
        if b.batch > a.batch
    ]
    return statistics.median(pairs) if pairs else 0.0


def _leak(name: str, device: Device, growth: dict[str, Any]) -> Finding:
    last = device.readings[-1]
    source = culprit(device)
    per_step = growth["per_step"]
    said = [f"each step leaves {size(per_step)} more on {device.name}"]
    if source is not None:
        said.append(f", asked for at {base(source.file)}:{source.line} in {source.function}")
    left = (device.total or 0) - last.allocated
    if device.total and left > 0:
        said.append(f"\n{size(left)} are left, full after {left / per_step:,.0f} more steps")
    evidence: dict[str, Any] = {
        "bytes_per_step": round(per_step),
        "bytes_per_epoch": round(growth["per_epoch"]) if growth["per_epoch"] else None,
        "allocated": size(last.allocated),
        "reserved": size(last.reserved),
        "driver": size(last.driver) if last.driver is not None else "unknown",
        "steps": last.batch,
        "epochs": growth["epochs"],
    }
    if source is not None:
        evidence |= {
            "held_by_the_line": f"{size(source.first)} -> {size(source.last)}",
            "live_blocks": source.blocks,
            "frames": list(source.frames),
            "code": source.text,
        }
    where = Where(
        name or None,
        file=source.file if source else None,
        line=source.line if source else None,
    )
    # One epoch does not tell what is cleared at its end.
    severity = WARNING if growth["epochs"] == 1 else ERROR
    return Finding("".join(said), where, evidence, severity=severity)


def culprit(device: Device) -> Allocation | None:
    """Return the line whose live memory grew most."""
    grown = sorted(device.allocations.values(), key=lambda a: (a.first - a.last, a.file, a.line))
    return grown[0] if grown and grown[0].last > grown[0].first else None


@rule(
    "DLC513",
    severity=WARNING,
    needs="run",
    title="A training step needs more memory than the device has",
    why="The first step, or the first large batch, ends with out of memory.",
    fix="Lower batch_size to the largest that fits and accumulate gradients over several batches; "
    "mixed precision and activation checkpointing cut the activations.",
)
def device_budget(obs: Observation) -> Iterator[Finding]:
    """Fire where a step ran out of memory, or where its foreseen peak exceeds the device.

    The peak is measured with --device; else foreseen from the config's model, loss and optimizer
    on tensors without memory. cuDNN workspaces, other precisions and fragments are not seen there:
    a margin of 10 % and half a GiB for the CUDA context stand for them.
    """
    declared = bytes_of((obs.settings.get("machine") or {}).get("device"))
    reasons = []
    judged = False
    for name, split in obs.splits.items():
        failure = exhausted(split)
        if failure is not None:
            judged = True
            yield _exhausted(name, split, failure, declared)
            continue
        room, whose = _room(split, declared)
        if room is None:
            reasons.append("no device, and `machine: {device: 24GiB}` names none")
            continue
        measured = measured_peak(split)
        if measured is not None:
            judged = True
            if measured > room:
                yield _exceeds(name, split, measured, room, whose)
        elif split.budget is not None and not split.budget.reason:
            judged = True
            if needed(split.budget) > room:
                yield _foreseen(name, split, split.budget, room, whose)
        else:
            reasons.append(split.budget.reason if split.budget else "no model in the config")
    if not judged:
        raise NotApplicable(next(iter(reasons), "no model in the config"))


def exhausted(split: Split) -> Failure | None:
    """Return the failure of a step, or of a move, for want of memory on the device."""
    for failure in split.failures.values():
        text = f"{failure.exception} {failure.message}"
        if FULL.search(text) and DEVICE_WORDS.search(text):
            return failure
    return None


def measured_peak(split: Split) -> int | None:
    """Return the highest that a step was seen to allocate; None where no step ran on a device."""
    device = split.device
    if device is None or not device.stepped or not device.readings:
        return None
    return max(reading.peak for reading in device.readings)


def _room(split: Split, declared: int | None) -> tuple[int | None, str]:
    if declared is not None:
        return declared, "the device of `machine`"
    device = split.device
    if device is not None and device.total:
        return device.total, device.name
    return None, ""


def _loader_place(name: str, split: Split) -> Where:
    loader = split.loader
    return Where(name or None, file=loader.file if loader else None,
                 line=loader.line if loader else None)  # fmt: skip


def _foreseen(name: str, split: Split, budget: Budget, room: int, whose: str) -> Finding:
    fits = largest_batch(budget, room)
    over = "" if budget.peak > room else ", its margins included,"
    said = (
        f"a step of {budget.model} with a batch of {budget.batch} holds {size(budget.peak)} at its "
        f"peak (foreseen){over} and {whose} has {size(room)}"
    )
    said += _fits(fits, budget)
    parts = {kind.replace(" ", "_"): size(n) for kind, n in budget.parts().items() if n}
    evidence = {
        "foreseen_peak": size(budget.peak),
        "with_margins": f"{size(needed(budget))} (10 % and {size(CONTEXT)} for the CUDA context)",
        "device": size(room),
        "batch_size": budget.batch,
        "largest_batch": fits,
        **parts,
        "moment": budget.moment,
        "bytes_per_sample": budget.per_sample,
        "assumed": list(budget.assumed),
    }
    return Finding(said, _loader_place(name, split), evidence)


def _fits(fits: int | None, budget: Budget) -> str:
    if fits is None:
        return ""
    if fits == 0:
        return "\nno batch fits: parameters, gradients and optimizer state alone are too large"
    return f"\nthe largest batch that fits is {fits} ({size(budget.per_sample)} a sample)"


def _exceeds(name: str, split: Split, peak: int, room: int, whose: str) -> Finding:
    device = split.device
    assert device is not None  # noqa: S101
    said = f"a step was seen to hold {size(peak)} on {device.name}, and {whose} has {size(room)}"
    evidence = {"measured_peak": size(peak), "device": size(room)} | _largest(split, room)
    return Finding(said, _loader_place(name, split), evidence, severity=ERROR)


def _largest(split: Split, room: int) -> dict[str, Any]:
    budget = split.budget
    if budget is None or budget.reason:
        return {}
    return {"largest_batch": largest_batch(budget, room), "foreseen_peak": size(budget.peak)}


def _exhausted(name: str, split: Split, failure: Failure, declared: int | None) -> Finding:
    device = split.device or Device()
    room = declared if declared is not None else device.total
    text = failure.message.split("\n")[0][:300]
    frame = failure.user_frame
    where = Where(
        name or None, file=frame.file if frame else None, line=frame.line if frame else None
    )
    named = f" of {device.name}" if device.name else ""
    evidence: dict[str, Any] = {"exception": failure.exception, "message": text}
    if room:
        evidence |= {"device": size(room)} | _largest(split, room)
    if device.readings:
        evidence["peak_before"] = size(max(r.peak for r in device.readings))
    return Finding(
        f"the memory{named} ran out: {text}", where, evidence, severity=ERROR,
        explains=frozenset({failure.key}),
    )  # fmt: skip
