"""What a step did to the values: the mean and std that it came to, and of which scale these are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dlcheck.observation import Journey, Split, Step
from dlcheck.rules import normalising, ways

Numbers = tuple[float, ...]

# Statistics of images of 0..1 lie in these.
UNIT_MEAN = (0.0, 1.0)
UNIT_STD = (0.05, 0.75)
NAMED_STD = (0.05, 1.0)
BYTE_MEAN = (20.0, 235.0)
BYTE_STD = (20.0, 135.0)
ONE = 1e-3
DIVISORS = (120.0, 300.0)
LEAST = 0.01
NAMES = re.compile(r"normali[sz]e|standardi[sz]e", re.IGNORECASE)
OWN_DIVISOR = re.compile(r"max_pixel_value=([\d.]+)")


@dataclass(frozen=True)
class Passed:
    """A step on a field's way, and whether the collate function took it."""

    step: Step
    batch: bool = False


def passed(split: Split, journey: Journey, field: str) -> list[Passed]:
    """Return a field's steps in its sample and then in the batch, where it is still known."""
    own = ways.own_chain(journey, field)
    whole = own if own and not own[0].sources else ways.chain(journey, field)
    steps = [Passed(step) for step in whole]
    batch = split.journeys.get(ways.COLLATED)
    if batch is None or batch.failure is not None:
        return steps
    name = _in_batch(journey, batch, field)
    return steps + [Passed(step, batch=True) for step in ways.chain(batch, name)] if name else steps


def _in_batch(journey: Journey, batch: Journey, field: str) -> str:
    """Find the field of a batch that holds one of its samples: by its name, else by its shape."""
    if field in batch.fields:
        return field
    shape = journey.fields[field].shape
    alike = [n for n, s in batch.fields.items() if s.shape and s.shape[1:] == shape]
    others = [n for n, s in journey.fields.items() if s.shape == shape]
    return alike[0] if len(alike) == len(others) == 1 else ""


def statistics(step: Step) -> tuple[Numbers, Numbers] | None:
    """Return the mean and std that a step subtracts and divides by, as it really did.

    Read from the values; where these do not tell, from its parameters.
    """
    if step.scale:
        if min(step.scale) <= 0:
            return None
        mean = tuple(-o / s for s, o in zip(step.scale, step.offset, strict=True))
        return mean, tuple(1 / s for s in step.scale)
    used = normalising.used(step)
    if used is None or step.before is None or step.after.low == step.before.low:
        return None
    own = OWN_DIVISOR.search(step.parameters)
    factor = float(own[1]) if own else 1.0
    return tuple(m * factor for m in used[0]), tuple(s * factor for s in used[1])


def told(step: Step) -> str:
    """Render what a step applied as `mean 0.485, 0.456, 0.406 and std 0.229, 0.224, 0.225`."""
    figures = statistics(step)
    if figures is None:
        return ""
    if divides_by_byte(step) and abs(figures[0][0]) < LEAST:
        return f"a division by {figures[1][0]:.4g}"
    mean, std = (", ".join(f"{x:.3g}" for x in values) for values in figures)
    return f"mean {mean} and std {std}"


def for_unit(step: Step) -> bool:
    """Tell statistics of images of 0..1."""
    figures = statistics(step)
    if figures is None:
        return False
    std = NAMED_STD if NAMES.search(step.stage) else UNIT_STD
    return _within(figures[0], UNIT_MEAN) and max(figures[0]) > LEAST and _within(figures[1], std)


def for_bytes(step: Step) -> bool:
    """Tell statistics of images of 0..255, with a std of their scale or none."""
    figures = statistics(step)
    if figures is None or not _within(figures[0], BYTE_MEAN):
        return False
    return _within(figures[1], BYTE_STD) or all(abs(s - 1) <= ONE for s in figures[1])


def divides_by_byte(step: Step) -> bool:
    """Tell a division by 255 or so, whatever else the stage does."""
    if OWN_DIVISOR.search(step.parameters) and for_bytes(step):
        return True
    if not step.scale:
        return False
    divisor = 1 / step.scale[0] if step.scale[0] > 0 else 0.0
    return len(set(step.scale)) == 1 and DIVISORS[0] <= divisor <= DIVISORS[1]


def _within(values: Sequence[float], bounds: tuple[float, float]) -> bool:
    return all(bounds[0] <= value <= bounds[1] for value in values)
