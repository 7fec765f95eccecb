"""Hand-made processes: what their marks and points say of a heap that changes by a rule."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from dlcheck.observation import Culprit, Loader, Mark, Observation, Point, Process, Split

KIB, MIB = 1 << 10, 1 << 20
BASE = 160 * MIB
# Bytes that a batch adds, from its epoch, its place in the epoch and its number in the life.
Adds = Callable[[int, int, int], int]


def nothing(_epoch: int, _batch: int, _number: int) -> int:
    return 0


def steady(size: int) -> Adds:
    return lambda _epoch, _batch, _number: size


def process(
    role: str = "main",
    adds: Adds = nothing,
    *,
    epochs: int = 3,
    batches: int = 15,
    size: int = 10,
    noise: float = 2000,
    counts: Callable[[int], dict[str, Any]] | None = None,
    born: int = 0,
    number: int | None = None,
    seed: int = 1,
) -> Process:
    """Run `epochs` of `batches` of `size` samples; `counts` gives other figures of a mark."""
    chance = random.Random(seed)
    marks: list[Mark] = []
    points: list[Point] = []
    heap, made = BASE, 0
    for epoch in range(born, born + epochs):
        for batch in range(batches):
            heap += adds(epoch, batch, made)
            made += 1
            seen = heap + round(chance.gauss(0, noise))
            more = {"heap": heap, "heap_before": heap, "blocks": 100_000, "rss": 2 * heap}
            more |= counts(made) if counts else {}
            points.append(Point(epoch, made * size, seen, more["blocks"], returned=6000))
            if batch in (0, batches - 1):
                at = "end" if batch else "begin"
                marks.append(Mark(epoch, at, made, made * size, **more))
    return Process(role, number, born, marks=tuple(marks), points=tuple(points))


def split_of(*processes: Process, culprits: tuple[Culprit, ...] = (), **more: Any) -> Split:
    """Make a split of 300 samples in 2 workers that was read three times."""
    named = {f"{p.role}{p.number}e{p.born}": p for p in processes}
    known: dict[str, Any] = {
        "samples": 300, "of": 300, "epochs": 3, "again": 600, "seconds": 9.0,
        "loader": Loader(kind="map", num_workers=2, dataset_length=300, file="data.py", line=40),
    }  # fmt: skip
    found = {f"{c.resource}:{c.role}:{n}": c for n, c in enumerate(culprits)}
    return Split(**(known | more), processes=named, culprits=found)


def seen(split: Split, **settings: Any) -> Observation:
    limits = {"memory": 16 << 30, "memory_from": "machine", "shm": 64 * MIB, "handles": 1024}
    return Observation(splits={"": split}, settings={"limits": limits} | settings)
