"""The epochs of a leak run: of equal length, so that what is left after each compares."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from pathlib import Path
from typing import Any

from dlcheck.observers.handles import Segments, follow_segments
from dlcheck.run.drive import Drive

LATER = 2.0
SETTLING = 10.0
POLL = 0.01
PATIENCE = 20.0
MOST_FURTHER = 12
MOST_WORKERS, MOST_PROCESSES = 16, 200


def measure(drive: Drive, *, first: int = 0, asks: bool = False) -> None:
    """Drive the epochs of the plan with the counters of all processes read.

    An epoch is the shortest of the real one, `epoch_batches` and the budget's share; the later
    ones are no longer than the first. With `asks` the parent may want more of them.
    """
    watch, plan = drive.watch, drive.plan
    watch.values, watch.metering = False, metered_workers(plan.epochs)
    folder = watch.scratch.folder
    if watch.segments is None:
        watch.segments = Segments(folder)
        follow_segments(folder)
    loader = drive.target.loader
    # Workers of an earlier drive were started without what the marks rely on.
    release(loader)
    watch.persistent = bool(getattr(loader, "persistent_workers", False))
    begun = time.monotonic()
    watch.freeze()
    drive.deadline = float("inf")
    watch.note(epochs_wanted=plan.epochs, epoch_batches=plan.epoch_batches)
    drive.meter = meter = watch.meter()
    if meter is not None:
        meter.hold(drive.target, drive.step)
    try:
        epochs(drive, first, asks=asks)
    finally:
        watch.note(seconds=round(time.monotonic() - begun, 3))
        drive.meter = None
        release(loader)
        watch.thaw()
        watch.values, watch.metering, watch.driving = True, 0, False


def metered_workers(count: int) -> int:
    """Return how many workers of an epoch are read: they do alike, and each is a process."""
    return min(MOST_WORKERS, max(MOST_PROCESSES // max(count, MOST_FURTHER), 1))


def epochs(drive: Drive, first: int, *, asks: bool) -> None:
    """Read one epoch after the other, as long as none fails."""
    plan, begun = drive.plan, time.monotonic()
    share = plan.budget / max(plan.epochs, 1)
    number, end, most = first, first + plan.epochs, plan.epoch_batches
    while number < end:
        before = drive.batches
        longest = share if number == first else LATER * share
        finished = one_epoch(drive, number, time.monotonic() + longest, most)
        if drive.stopped:
            return
        if number == first and not finished:
            most = drive.batches - before
            drive.watch.note(epoch_batches=most)
        number += 1
        if number == end:
            settle(drive, (time.monotonic() - begun) / max(drive.batches, 1))
            if asks:
                end += further(drive, begun, end - first)


def settle(drive: Drive, seconds: float) -> None:
    """Have workers that outlive their epochs mark the last one's end as they did the others'.

    They learn of an end when the next epoch begins: it is begun, and a batch of each is taken,
    which took some `seconds` each, and dropped.
    """
    watch, loader = drive.watch, drive.target.loader
    workers = int(getattr(loader, "num_workers", 0) or 0)
    if not watch.persistent or workers * seconds > SETTLING:
        return
    watch.metering, metered = -watch.metering, watch.metering
    watch.say_now()
    with contextlib.suppress(Exception):
        for _ in itertools.islice(iter(loader), workers):
            pass
    watch.metering = metered


def further(drive: Drive, begun: float, done: int) -> int:
    """Return how many epochs to add: what the parent wants, as far as the budget goes."""
    spent = time.monotonic() - begun
    left = int((drive.plan.budget - spent) / (spent / done))
    most = min(MOST_FURTHER - done, left)
    return min(more(drive), most) if most > 0 else 0


def one_epoch(drive: Drive, number: int, deadline: float, most: int | None) -> bool:
    """Read one epoch between two marks; True when it came to its end."""
    meter = drive.meter
    if meter is not None:
        meter.begin_epoch(number)
    finished = drive.epoch(number, deadline, most)
    # The iterator is gone by now, and with it workers that end with their epoch.
    # What the follower keeps of it is there at this epoch's end, and not a part of the next.
    if drive.follower is not None:
        drive.follower.ended()
    if meter is not None:
        meter.end()
    return finished


def more(drive: Drive) -> int:
    """Ask the parent, which knows what all processes hold, how many epochs to add."""
    watch = drive.watch
    answer = Path(watch.scratch.folder) / f"further-{time.monotonic_ns()}.json"
    watch.scratch.write(further=watch.split, answer=answer.name)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if answer.exists():
            with contextlib.suppress(OSError, ValueError):
                return int(json.loads(answer.read_bytes()))
            return 0
        time.sleep(POLL)
    return 0


def release(loader: Any) -> None:
    """End workers that outlive their epochs, so that they say what they hold at last."""
    with contextlib.suppress(Exception):
        iterator = vars(loader).get("_iterator")
        if iterator is not None:
            loader._iterator = None  # noqa: SLF001
            iterator._shutdown_workers()  # noqa: SLF001
