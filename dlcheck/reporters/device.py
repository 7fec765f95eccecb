"""The device in plain words: what was read of it, what its figures mean, what a step would need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlcheck.footprint import CONTEXT, MARGIN, largest_batch
from dlcheck.observation import Budget, Device, Reading, Split
from dlcheck.reporters.counted import size

EPOCHS = ("epoch", "steps", "allocated", "reserved", "peak", "driver")
PARTS = ("part", "bytes", "share")
MOST_EPOCHS = 8
GIB = 1 << 30
SIZES = (8, 16, 24, 40, 80)
NOTICEABLE = 1 << 20


@dataclass(frozen=True)
class Section:
    """A heading, a table that may be empty, and sentences below it."""

    title: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    lines: tuple[str, ...] = ()


def sections(split: Split) -> list[Section]:
    """Say what there is to say of a device: measured, foreseen, both or nothing."""
    found = []
    device, budget = split.device, split.budget
    if device is not None and (device.readings or device.reason or device.name):
        found.append(measured(device))
    if budget is not None and budget.peak:
        found.append(foreseen(budget))
    elif budget is not None and budget.reason and budget.model:
        found.append(Section("a training step, foreseen without a device", lines=(budget.reason,)))
    return found


def measured(device: Device) -> Section:
    """Render what was read of a device, or the reason why there was none."""
    if not device.name:
        why = device.reason or "none was found"
        return Section(f"device (--device {device.asked})", lines=(f"{why}; nothing was measured",))
    total = f", {size(device.total)}" if device.total else ""
    free = f" ({size(device.free)} free at the start)" if device.free is not None else ""
    title = f"device {device.name}: {device.model}{total}{free}"
    if not device.readings:
        return Section(title, lines=("no batch came that could be moved to it",))
    rows = [_row(number, readings) for number, readings in _epochs(device.readings)]
    return Section(title, EPOCHS, tuple(rows[:MOST_EPOCHS]), tuple(_meanings(device)))


def _epochs(readings: Sequence[Reading]) -> list[tuple[int, list[Reading]]]:
    found: dict[int, list[Reading]] = {}
    for reading in readings:
        found.setdefault(reading.epoch, []).append(reading)
    return sorted(found.items())


def _row(number: int, readings: list[Reading]) -> tuple[str, ...]:
    last = readings[-1]
    peak = max(reading.peak for reading in readings)
    driver = "-" if last.driver is None else size(last.driver)
    steps = f"{readings[0].batch:,}-{last.batch:,}"
    return (str(number), steps, size(last.allocated), size(last.reserved), size(peak), driver)


def _meanings(device: Device) -> list[str]:
    """Say what memory_summary, nvidia-smi and empty_cache() mean, with the figures of this run."""
    last = device.readings[-1]
    peak = max(reading.peak for reading in device.readings)
    work = "a step" if device.stepped else "a batch (no step ran)"
    live, kept = size(last.allocated), size(last.reserved)
    idle = size(max(last.reserved - last.allocated, 0))
    lines = [
        (
            f"allocated, {live}, is what live tensors take, as in memory_summary(): only when "
            "this grows from step to step is there a leak."
        ),
        f"peak, {size(peak)}, is the most that {work} held at once: this has to fit.",
        (
            f"reserved, {kept}, is what PyTorch keeps of the device, and {idle} of it is free "
            "for the next tensors. It rises to the largest step and stays there: no leak."
        ),
        (
            f"empty_cache() would give at most {idle} back to other processes, and the next "
            "step asks for it again. It frees no live tensor."
        ),
    ]
    if last.driver is not None:
        lines.insert(3, _driver(device, last, last.driver))
    lines += [f"not seen: {one}" for one in device.missing]
    return lines


def _driver(device: Device, last: Reading, driver: int) -> str:
    said = f"nvidia-smi shows {size(driver)}: reserved"
    before = device.before
    rest = driver - last.reserved - (before or 0)
    if rest > NOTICEABLE:
        said += f", {size(rest)} for the CUDA context and its libraries"
    if before is None:
        return f"{said} and other processes, which no allocator of PyTorch counts."
    if before > NOTICEABLE:
        said += f", and {size(before)} that other processes held before"
    return f"{said}."


def foreseen(budget: Budget) -> Section:
    """Render the peak of a step that never ran, by what it is for."""
    made = " + ".join(filter(None, (budget.model, budget.loss, budget.optimizer)))
    title = f"a training step of {made}, foreseen without a device: {size(budget.peak)}"
    rows = [
        (kind, size(count), f"{count / budget.peak:.0%}")
        for kind, count in budget.parts().items()
        if count
    ]
    lines = [
        (
            f"at its peak, in {_moment(budget)}, with a batch of {budget.batch:,}; "
            f"{size(budget.per_sample)} a sample over {size(budget.fixed)}"
        ),
        *_fitting(budget),
        *budget.assumed,
    ]
    return Section(title, PARTS, tuple(rows), tuple(lines))


def _moment(budget: Budget) -> str:
    return {"step": "the optimizer's step"}.get(budget.moment, budget.moment)


def _fitting(budget: Budget) -> list[str]:
    """Say how large a batch the usual devices take."""
    fits = [(one, largest_batch(budget, one * GIB)) for one in SIZES]
    known = [f"{batch:,} in {one} GiB" for one, batch in fits if batch]
    if not known:
        return []
    margins = f"{MARGIN:.0%} and {size(CONTEXT)} for the CUDA context left free"
    return [f"largest batch that fits ({margins}): {', '.join(known)}"]
