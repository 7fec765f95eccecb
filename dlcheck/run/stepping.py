"""The user's step at work: followed through the epochs of `leak`, tried on two batches by `shapes`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from dlcheck.observation import Steps, plain
from dlcheck.observers.steps import Follower
from dlcheck.run import epochs, graphs
from dlcheck.run.drive import Drive


def measure(drive: Drive, *, first: int = 0) -> None:
    """Drive the epochs of a leak run, each batch given to the step where there is one."""
    step = drive.step = drive.target.step
    if step is None:
        epochs.measure(drive, first=first, asks=True)
        return
    watch, split = drive.watch, drive.watch.split

    def note(seen: Steps) -> None:
        watch.scratch.write(obs={"splits": {split: {"steps": plain(seen)}}})

    drive.follower = Follower(note, lambda: graphs.census(drive.target))
    drive.follower.begin()
    try:
        epochs.measure(drive, first=first, asks=True)
    finally:
        drive.follower.end()
        with contextlib.suppress(Exception):
            keepers = graphs.keepers(drive.follower, drive.target)
            watch.scratch.write(obs={"splits": {split: {"culprits": plain(keepers)}}})
        drive.follower = None
        unable = getattr(step, "unable", "")
        if isinstance(unable, str) and unable:
            note(Steps(reason=unable))


def note_trials(watch: Any, drives: Mapping[str, Drive]) -> None:
    """Give each split's step the first and the last batch that were read."""
    for name, drive in drives.items():
        watch.split = name
        drive.kept.clear()
