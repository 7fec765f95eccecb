"""The user's exceptions, exits, crashes and hangs."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

from dlcheck.observation.tallies import EXAMPLES, Leaf, SampleId, sample_order


@dataclass(frozen=True)
class Frame:
    """A line of a traceback. `user` is false for installed packages and the standard library."""

    file: str
    line: int
    function: str
    text: str = ""
    user: bool = False


@dataclass(frozen=True)
class SampleLeaves:
    """One sample of a batch that could not be joined: its fields, in order.

    Containers stand under their own path too, as Leaf("dict"), Leaf("tuple", shape=(2,)).
    """

    index: SampleId
    leaves: dict[str, Leaf]


@dataclass(frozen=True)
class Failure:
    """An exception, exit, crash or hang of the user's code.

    `phase` is where it happened: import, build, iter (making the iterator), sample, collate,
    batch (the loader itself), hook, step, exit (the process ended), signal, hang, rank (one of many
    ranks was lost).
    `at` holds the samples that failed like this; `count` how many did.
    """

    phase: str
    exception: str = ""
    message: str = ""
    frames: tuple[Frame, ...] = ()
    at: tuple[SampleId, ...] = ()
    count: int = 1
    batch: tuple[SampleId, ...] = ()
    samples: tuple[SampleLeaves, ...] = ()
    worker: int | None = None
    epoch: int = 0
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Equal for failures that are the same one, met again."""
        last = self.frames[-1] if self.frames else None
        place = f"{last.file}:{last.line}" if last else ""
        words = re.sub(r"\d+", "#", self.message)[:60]
        return f"{self.phase}|{self.exception}|{place}|{self.place()}|{words}"

    def place(self) -> str:
        """Return the innermost line of the user's own code as `file:line`, if there is one."""
        frame = self.user_frame
        return f"{frame.file}:{frame.line}" if frame else ""

    @property
    def user_frame(self) -> Frame | None:
        """The innermost frame of the user's own code."""
        return next((f for f in reversed(self.frames) if f.user), None)

    def _rank(self) -> tuple[Any, ...]:
        """Order failures by what merging leaves alone, so that no order or grouping matters."""
        batch = [sample_order(index) for index in self.batch]
        rest = (self.message, repr(self.frames), repr(self.samples), repr(self.detail))
        return (self.epoch, batch, -1 if self.worker is None else self.worker, *rest)

    def merge(self, other: Failure) -> Failure:
        """Count the same failure once more; details are those of the earlier epoch."""
        first, second = sorted((self, other), key=Failure._rank)
        at = sorted({*self.at, *other.at}, key=sample_order)[: 4 * EXAMPLES]
        return dataclasses.replace(first, at=tuple(at), count=first.count + second.count)
