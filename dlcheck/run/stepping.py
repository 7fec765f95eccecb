"""The user's step at work: followed through the epochs of `leak`, tried by `shapes`."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from dlcheck.observation import Steps, Trial, plain
from dlcheck.observers.meetings import Meetings, Parts
from dlcheck.observers.steps import Follower
from dlcheck.run import epochs, graphs
from dlcheck.run.blame import blame, unable
from dlcheck.run.contract import BATCHNORM_REFUSES
from dlcheck.run.drive import Drive
from dlcheck.run.failures import failure_of, keyed, safe_text
from dlcheck.run.step import Step

LONG = 10.0


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


def note_trials(watch: Any, drives: Mapping[str, Drive]) -> bool:
    """Give each split's step the first and the last batch that were read, and write what came.

    True when one of them was refused.
    """
    refused = False
    for name, drive in drives.items():
        watch.split = name
        kept, step = list(drive.kept), drive.target.step
        drive.kept.clear()
        if step is None or drive.failed:
            continue
        trials: list[Trial] = []
        begun = time.monotonic()
        for which, batch in zip(("first", "last"), kept, strict=False):
            if not trials or (not trials[0].failure and time.monotonic() - begun < LONG):
                trials.append(trial(watch, step, batch, which, drive.names))
        if trials:
            watch.note(trials=[plain(one) for one in trials])
            refused |= any(one.failure for one in trials)
    return refused


def trial(watch: Any, step: Step, batch: Any, which: str, names: tuple[str, ...] = ()) -> Trial:
    """Call the step once; what it raises is written down as a failure of phase `step`."""
    meetings = Meetings(Parts(batch, names))
    try:
        try:
            with meetings.watching():
                step(batch)
        except Exception as error:
            # A compiled step may not take to being watched.
            if not type(error).__module__.startswith("torch._dynamo"):
                raise
            step(batch)
    except BaseException as error:  # noqa: BLE001 - the user's failure is what we look for
        return _refused(watch, error, which, meetings)
    reason = getattr(step, "unable", "")
    return Trial(
        which, meetings=tuple(meetings.found), reason=reason if isinstance(reason, str) else ""
    )


def _refused(watch: Any, error: BaseException, which: str, meetings: Meetings) -> Trial:
    why = unable(error)
    if why:
        return Trial(which, reason=why)
    if BATCHNORM_REFUSES in safe_text(error):
        watch.note(batchnorm=failure_of(error, "model"))
        return Trial(which, reason="a batch of one sample, which BatchNorm refuses in training")
    failure = failure_of(error, "step")
    watch.note(failures=keyed(failure))
    found = blame(error, meetings.parts)
    return Trial(
        which, failure=next(iter(keyed(failure))), meetings=tuple(meetings.found),
        **dataclasses.asdict(found),
    )  # fmt: skip
