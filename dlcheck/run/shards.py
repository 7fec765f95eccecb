"""One loader split over ranks: each takes every so-many-eth batch that the user's sampler gives."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from dlcheck.run import torch_private
from dlcheck.run.drive import Drive

MOST_COMPARED = 10_000


class Slice:
    """A sampler of which one rank takes its part; as long as the whole, as the loader's len is."""

    def __init__(self, sampler: Any, drive: Drive) -> None:
        self.sampler = sampler
        self.drive = drive

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        assert self.drive.shard is not None  # noqa: S101
        number, of = self.drive.shard
        order, watch = 0, self.drive.watch
        first = watch.epoch == 0
        for place, one in enumerate(self.sampler):
            if first and place < MOST_COMPARED:
                order = zlib.crc32(repr(one).encode(), order)
            if place % of == number:
                yield one
        if first:
            watch.scratch.write(obs={"settings": {f"order:{watch.split}:{number}": order}})


def take_part(drive: Drive, number: int, of: int) -> bool:
    """Let a drive read its part of the loader; False when another rank reads all of it.

    What cannot be split by index (a stream, a loader that is not torch's) is read by rank 0.
    A DistributedSampler has split its indexes already.
    """
    loader, dataset = drive.target.loader, drive.target.dataset
    if not torch_private.is_loader(loader) or torch_private.is_iterable_dataset(dataset):
        return number == 0
    if _split_already(loader, of):
        return True
    drive.shard = (number, of)
    if drive.plan.samples is not None and drive.plan.samples > 0:
        drive.plan.samples = -(-drive.plan.samples // of)
    torch_private.replace_index_sampler(loader, lambda sampler: Slice(sampler, drive))
    return True


def _split_already(loader: Any, of: int) -> bool:
    samplers = [getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)]
    return any(getattr(one, "num_replicas", None) == of for one in samplers)
