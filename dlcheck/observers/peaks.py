"""The line during which a process needs most memory: VmHWM, begun again before each line."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

from dlcheck.observers import counters
from dlcheck.observers.starters import Lines, Place

MMAP_THRESHOLD = -3
TRIM_THRESHOLD = -1
SMALL = 1 << 17
RELEVANT = 0.5
MOST_LINES = 5


@dataclass
class Peak:
    """`highest` is above what was resident before the batch, `own` above the line's beginning."""

    place: Place
    highest: int = 0
    own: int = 0
    times: int = 0


class Peaks(Lines):
    """Follows the user's lines, and what is resident at most while each of them runs.

    `overall` is the most of all batches, whosever line it was.
    """

    def __init__(self, deadline: float) -> None:
        super().__init__({}, {}, deadline)
        self.peaks: dict[tuple[str, int], Peak] = {}
        self.batch: dict[tuple[str, int], Peak] = {}
        self.worst: list[Peak] = []
        self.base = self.level = self.overall = 0
        self.able = counters.reset_peak()
        large_blocks_apart()

    def begin(self) -> None:
        """Begin a batch."""
        self.batch = {}
        self.local.last = None
        counters.reset_peak()
        self.base = self.level = counters.status().get("VmRSS", 0)

    def end(self) -> None:
        """Keep the batch that needed most."""
        self._look(sys._getframe())  # noqa: SLF001 - the last line of all
        found = sorted(self.batch.values(), key=lambda peak: -peak.highest)
        if found and (not self.worst or found[0].highest > self.worst[0].highest):
            self.worst = found

    def _look(self, frame: FrameType) -> None:
        last = getattr(self.local, "last", None)
        status = counters.status()
        high, level = status.get("VmHWM", 0), status.get("VmRSS", 0)
        counters.reset_peak()
        self.overall = max(self.overall, high - self.base)
        if last is not None:
            place = self._place(last, frame)
            peak = self.batch.setdefault((place.file, place.line), Peak(place))
            peak.highest = max(peak.highest, high - self.base)
            peak.own = max(peak.own, high - self.level)
            peak.times += 1
        self.level = level

    def worst_lines(self) -> list[Peak]:
        """List the lines of the batch that needed most: the one that added most comes first."""
        if not self.worst:
            return []
        most = self.worst[0].highest
        near = [peak for peak in self.worst if peak.highest >= RELEVANT * most]
        near.sort(key=lambda peak: -peak.own)
        return near[:MOST_LINES]


def large_blocks_apart() -> None:
    """Have malloc give large blocks pages of their own, and take them back when they are freed."""
    with contextlib.suppress(Exception):
        library: Any = ctypes.PyDLL(None)
        library.mallopt(MMAP_THRESHOLD, SMALL)
        library.mallopt(TRIM_THRESHOLD, SMALL)
