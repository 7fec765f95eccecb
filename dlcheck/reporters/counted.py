"""Amounts in words: how much was read, how long it took, how large it is."""

from __future__ import annotations

from dlcheck.observation import Split

_PLURALS = {"batch": "batches", "backward pass": "backward passes", "child": "children"}
TWO_MINUTES = 100
UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
HUNDRED = 100


def seen(split: Split) -> str:
    """Say how much was read: `240 of 240 samples, 8 batches, 2 epochs in 1.3 s`."""
    of = "" if split.of is None else f" of {split.of:,}"
    # A second epoch draws the same samples again.
    read = split.samples if split.of is None else min(split.samples, split.of)
    samples = f"{read:,}{of} {'sample' if split.of == 1 else 'samples'}"
    if not of:
        samples = count(split.samples, "sample")
    if split.spread:
        samples += f" ({split.spread:,} spread over the dataset)"
    parts = [samples, count(split.batches, "batch"), count(split.epochs, "epoch")]
    return f"{', '.join(parts)} in {duration(split.seconds)}"


def duration(seconds: float) -> str:
    """Write seconds, or minutes where there are many."""
    return f"{seconds:.1f} s" if seconds < TWO_MINUTES else f"{seconds / 60:.1f} min"


def size(amount: float | None) -> str:
    """Write bytes in three digits: `1.42 GiB`."""
    value = float(amount or 0)
    for unit, name in UNITS:
        if abs(value) >= unit:
            scaled = value / unit
            return f"{scaled:.0f} {name}" if abs(scaled) >= HUNDRED else f"{scaled:.3g} {name}"
    return f"{value:.0f} B"


def count(n: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{n:,} {noun if n == 1 else _PLURALS.get(noun, noun + 's')}"
