"""Means and standard deviations: what a stage subtracts and divides by, and what was wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlcheck.observation import Journey, Split, Step
from dlcheck.rules import ways
from dlcheck.rules.words import joined, number

Statistics = tuple[tuple[float, ...], tuple[float, ...]]

BYTE = 255.0
CLOSE = 0.006
FEW = 2
PUBLISHED: dict[str, Statistics] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "inception": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "clip": ((0.48145, 0.45783, 0.40821), (0.26863, 0.2613, 0.27577)),
}
STAGE = re.compile(r"normali[sz]e", re.IGNORECASE)
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
GIVEN = {
    key: re.compile(rf"\b{key}=(?:[\w.]*[([]+)?\s*({NUMBER}(?:,\s*{NUMBER})*)\s*[])]?")
    for key in ("mean", "std")
}


def wanted(said: Any) -> Statistics | None:
    """Read `normalize:` of a config as mean and std; None for what it does not know."""
    if isinstance(said, Mapping):
        mean, std = said.get("mean"), said.get("std")
        if isinstance(mean, list) and isinstance(std, list):
            return tuple(map(float, mean)), tuple(map(float, std))
        return None
    return PUBLISHED.get(str(said).lower())


def used(step: Step) -> Statistics | None:
    """Read mean and std of a stage that normalises from its parameters; None where they lack."""
    if not STAGE.search(step.stage):
        return None
    found = [GIVEN[key].search(step.parameters) for key in ("mean", "std")]
    if not all(found):
        return None
    mean, std = (tuple(float(n) for n in match[1].split(",")) for match in found if match)
    return mean, std


def last_used(journey: Journey, field: str) -> tuple[Step, Statistics] | None:
    """Return the last stage on a field's way that normalises with known figures."""
    for step in reversed(ways.chain(journey, field)):
        figures = used(step)
        if figures is not None:
            return step, figures
    return None


def of_split(split: Split, field: str) -> tuple[Step, Statistics] | None:
    """Return the stage that normalises a field, where every journey passes one with its figures."""
    found = [last_used(way, field) for way in ways.ways(split) if field in way.fields]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    return known[0] if all(same(one[1], known[0][1]) for one in known) else None


def same(one: Statistics, other: Statistics) -> bool:
    """Compare means and deviations, on a scale of 1 or of 255, one number standing for all."""
    return any(
        all(_alike(a, b, scale) for a, b in zip(one, other, strict=True))
        for scale in (1.0, 1 / BYTE, BYTE)
    )


def _alike(one: Sequence[float], other: Sequence[float], scale: float) -> bool:
    if len(one) == 1 or len(other) == 1:
        size = max(len(one), len(other))
        one, other = list(one) * (size // len(one)), list(other) * (size // len(other))
    slack = CLOSE * max(1.0, scale)
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(abs(a * scale - b) <= slack for a, b in pairs)


def told(figures: Statistics) -> str:
    """Render as `mean [0.485, 0.456, 0.406] std [0.229, 0.224, 0.225]`."""
    mean, std = (joined(map(number, values)) for values in figures)
    return f"mean [{mean}] std [{std}]"


@dataclass(frozen=True)
class Affine:
    """What the steady stages of a way do to a value, a figure a channel: scale * raw + offset."""

    scale: tuple[float, ...]
    offset: tuple[float, ...]
    step: Step
    raw: str

    def figures(self) -> Statistics:
        """Return the mean and deviation that this comes to, of 0..1 where the raw is in bytes."""
        unit = BYTE if self.raw == "uint8" else 1.0
        pairs = list(zip(self.scale, self.offset, strict=True))
        return tuple(-o / s / unit for s, o in pairs), tuple(1 / s / unit for s, _ in pairs)


def total(split: Split, field: str) -> Affine | None:
    """Compose the steps that shift and scale a field in the same way in every journey.

    None where no step shifts: scaling alone is no normalisation. A shift of a random stage differs
    from journey to journey and is left out.
    """
    chains = [ways.chain(way, field) for way in ways.ways(split) if field in way.fields]
    if len(chains) < FEW:
        return None
    steady = [step for step in chains[0] if all(_met(step, chain) for chain in chains[1:])]
    steady = [step for step in steady if step.scale and all(step.scale)]
    shifting = [step for step in steady if any(abs(o) > CLOSE for o in step.offset)]
    if not shifting:
        return None
    width = max(len(step.scale) for step in steady)
    scale, offset = (1.0,) * width, (0.0,) * width
    for step in steady:
        a, b = _wide(step.scale, width), _wide(step.offset, width)
        scale = tuple(x * y for x, y in zip(scale, a, strict=True))
        offset = tuple(x * y + z for x, y, z in zip(offset, a, b, strict=True))
    first = chains[0][0]
    return Affine(scale, offset, shifting[-1], (first.before or first.after).dtype or "")


def _wide(values: Sequence[float], width: int) -> tuple[float, ...]:
    return tuple(values) if len(values) == width else (values[0],) * width


def _met(step: Step, chain: Sequence[Step]) -> bool:
    twin = next((one for one in chain if ways.same_place(one, step)), None)
    return twin is not None and _near(step.scale, twin.scale) and _near(step.offset, twin.offset)


def _near(one: Sequence[float], other: Sequence[float]) -> bool:
    return len(one) == len(other) and all(
        abs(a - b) <= CLOSE * max(abs(a), abs(b), CLOSE) for a, b in zip(one, other, strict=True)
    )
