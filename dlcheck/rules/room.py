"""What there is room for, and how long growth takes to fill it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dlcheck.growth import Growth
from dlcheck.observation import Observation, Split

UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
SIZE = re.compile(r"\s*([\d._]+)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
NAMES = ("bytes", "KiB", "MiB", "GiB", "TiB")
STEP = 1024
THOUSANDS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
HOUR, DAY = 3600, 86_400
FEW, MANY = 10, 100_000


@dataclass(frozen=True)
class Room:
    """Bytes of memory and shared memory, and open handles, where known; `where` says whose."""

    memory: int | None = None
    shm: int | None = None
    handles: int | None = None
    where: str = "this machine"
    declared: bool = False


def room(obs: Observation) -> Room:
    """Return what the config's `machine` says, else what the child found around itself."""
    seen = obs.settings.get("limits") or {}
    said = obs.settings.get("machine") or {}
    memory, shm = bytes_of(said.get("memory")), bytes_of(said.get("shm"))
    grouped = "this container" if seen.get("memory_from") == "cgroup" else "this machine"
    return Room(
        memory if memory is not None else bytes_of(seen.get("memory")),
        shm if shm is not None else bytes_of(seen.get("shm")),
        bytes_of(seen.get("handles")),
        "`machine`" if memory is not None else grouped,
        shm is not None,
    )


def bytes_of(value: Any) -> int | None:
    """Read 24GiB, 512 MB, or a bare number of bytes."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value)
    match = SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    number, unit, binary = match.groups()
    unit = unit.lower()
    scale = 1 << UNITS[unit] if binary else THOUSANDS[unit]
    return int(float(number.replace("_", "")) * scale)


def size(count: float) -> str:
    """Render bytes as `1.4 MiB`."""
    amount = abs(float(count))
    for name in NAMES:
        if amount < STEP or name == NAMES[-1]:
            break
        amount /= STEP
    digits = f"{amount:.0f}" if name == NAMES[0] or amount >= 100 else f"{amount:.3g}"  # noqa: PLR2004
    return f"{'-' if count < 0 else ''}{digits} {name}"


def full_length(obs: Observation, name: str, split: Split) -> int | None:
    """Return the samples of an epoch of the real job; None for a stream of unknown length."""
    said = (obs.settings.get("full_length") or {}).get(name)
    given = split.given.get("full_length")
    for value in (said, given, split.of):
        if isinstance(value, int) and value > 0:
            return value
    return None


def epoch_of_job(obs: Observation, name: str, split: Split, growth: Growth) -> float:
    """Return what all processes together gain in an epoch of the real job."""
    length = full_length(obs, name, split)
    if length is not None and growth.per_sample > 0 and not per_epoch_only(growth):
        return growth.per_sample * length
    return growth.per_epoch * max(growth.processes, 1)


def per_epoch_only(growth: Growth) -> bool:
    """Tell what is added once an epoch however long it is: less than one thing in two batches."""
    return growth.resource in {"threads", "children"} and growth.per_batch < 1 / 2


def epoch_seconds(obs: Observation, name: str, split: Split) -> float | None:
    """Return how long an epoch of the real job takes at the pace that was seen."""
    seen = split.samples + split.again
    length = full_length(obs, name, split)
    if not seen or not split.seconds or length is None:
        return None
    return split.seconds / seen * length


def filled(left: float, gain: float, seconds: float | None) -> str:
    """Say when room is used up: `after 12 epochs (about 3 hours)`; empty for a far future."""
    if gain <= 0 or left <= 0:
        return ""
    epochs = left / gain
    if epochs > MANY:
        return ""
    counted = f"{epochs:.0f}" if epochs >= FEW else f"{epochs:.2g}"
    when = f", about {duration(epochs * seconds)}" if seconds else ""
    return f"after {counted} epoch{'' if counted == '1' else 's'}{when}"


def duration(seconds: float) -> str:
    """Render `40 minutes`, `3 hours` or `12 days`."""
    if seconds < 2 * HOUR:
        return f"{max(seconds / 60, 1):.0f} minutes"
    if seconds < 2 * DAY:
        return f"{seconds / HOUR:.0f} hours"
    return f"{seconds / DAY:.0f} days"
