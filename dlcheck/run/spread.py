"""Which samples to draw beyond the start of a loader: first, last and some between.

Only batches that the user's own sampler could make: samples of equal size may have been put
together on purpose, an index may be no number, and what a sampler leaves out may be broken.
"""

from __future__ import annotations

import random
import time
from typing import Any

from dlcheck.run import torch_private

SAMPLES = 256
BATCH = 8
MOST_BATCHES = 200_000
ENDLESS = 2
CLOCK_EVERY = 1_000


def batches(loader: Any, length: int, seed: int, deadline: float) -> list[list[Any]]:
    """Return batches of indices to draw; none where the loader makes no batches of samples."""
    sampler = getattr(loader, "batch_sampler", None)
    if sampler is None:
        return []
    whole = bool(getattr(loader, "drop_last", False)) or not loader.batch_size
    size = loader.batch_size if whole else min(loader.batch_size, BATCH)
    generator = random.Random(seed)
    if size and torch_private.is_plain_shuffle(getattr(loader, "sampler", None)):
        return _anywhere(length, size, generator, whole=whole)
    own = _own_batches(sampler, length, loader.batch_size or 1, deadline)
    return _some(own, None if whole else size, generator)


def _anywhere(length: int, size: int, generator: random.Random, *, whole: bool) -> list[list[Any]]:
    """Mix indices as a shuffling sampler does."""
    chosen = {0, length - 1, *generator.sample(range(length), min(length, SAMPLES))}
    ends = (0, length - 1)
    order = sorted(chosen, key=lambda index: (index not in ends, generator.random()))
    parts = [order[i : i + size] for i in range(0, len(order), size)]
    return [part for part in parts if len(part) == size or not whole]


def _own_batches(sampler: Any, length: int, size: int, deadline: float) -> list[list[Any]]:
    """List the batches of an epoch as the user's sampler makes them."""
    most = min(MOST_BATCHES, ENDLESS * length // size + 1)
    found: list[list[Any]] = []
    try:
        for batch in sampler:
            found.append(list(batch))
            late = len(found) % CLOCK_EVERY == 0 and time.monotonic() > deadline
            if late or len(found) >= most:
                break
    except Exception:  # noqa: BLE001 - the sampler is user code, and this is one look more
        return found
    return found


def _some(own: list[list[Any]], size: int | None, generator: random.Random) -> list[list[Any]]:
    """Choose the first, the last and batches between; a part of each that is large."""
    if not own:
        return []
    each = min(len(own[0]) or 1, size or len(own[0]) or 1)
    wanted = max(2, SAMPLES // each)
    last = len(own) - 1
    places = [0, last] if last else [0]
    between = range(1, last)
    places += generator.sample(between, min(len(between), wanted))
    parts = [
        own[place] if size is None else _part(own[place], size, last=place == last)
        for place in places
    ]
    return [part for part in parts if part]


def _part(batch: list[Any], size: int, *, last: bool) -> list[Any]:
    return batch[-size:] if last else batch[:size]
