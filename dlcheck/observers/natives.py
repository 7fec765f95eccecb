"""Which line takes memory from the C heap that no allocator of Python's or torch's knows of.

The live heap is read between the user's lines. What a line adds is remembered, and handed on to
the caller when its function returns; what is freed later, by the end of a function's variables
say, is taken from what was remembered, the nearest size first. What is left over stayed.
"""

from __future__ import annotations

import collections
from types import FrameType
from typing import Any

from dlcheck.observers import counters
from dlcheck.observers.starters import Lines, Place
from dlcheck.run.failures import is_user

LEAST = 64
NEAR = 0.1
MOST_PENDING = 20_000
OUTSIDE = 0
Entry = tuple[Place, int]


class Natives(Lines):
    """Follows the lines of one thread, and what each adds to the heap for good."""

    def __init__(self, deadline: float) -> None:
        super().__init__({}, {}, deadline)
        self.pending: dict[int, list[Entry]] = collections.defaultdict(list)
        self.places: dict[tuple[str, int], Place] = {}
        self.level = counters.heap() or 0

    def _look(self, frame: FrameType) -> None:
        before = getattr(self.local, "level", None)
        now = counters.heap() or 0
        last = getattr(self.local, "last", None)
        grew = 0 if before is None else now - before
        inner = OUTSIDE if last is None else id(last[2])
        if grew >= LEAST and last is not None:
            key = (last[0].co_filename, last[1])
            if key not in self.places:
                self.places[key] = self._place(last, frame)
            if len(self.pending[inner]) < MOST_PENDING:
                self.pending[inner].append((self.places[key], grew))
        elif grew <= -LEAST:
            self._free(-grew, inner)
        # What these notes take is not the user's.
        self.local.level = counters.heap() or 0

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        result = super()._line(frame, event, arg)
        if event == "return":
            self._hand_on(frame)
            self.local.level = counters.heap() or 0
        return result

    def _hand_on(self, frame: FrameType) -> None:
        entries = self.pending.pop(id(frame), None)
        if not entries:
            return
        outer = frame.f_back
        while outer is not None and not is_user(outer.f_code.co_filename):
            outer = outer.f_back
        self.pending[OUTSIDE if outer is None else id(outer)] += entries

    def _free(self, size: int, inner: int) -> None:
        """Take what was freed from what was remembered, where it was allocated last."""
        for where in (inner, OUTSIDE):
            size = _taken(self.pending[where], size)
            if size < LEAST:
                return

    def settle(self) -> None:
        """Take off what was freed since the last line, when a batch was let go."""
        now = counters.heap() or 0
        before = getattr(self.local, "level", now)
        if now < before:
            self._free(before - now, OUTSIDE)
        self.local.last = None
        self.local.level = counters.heap() or 0

    def stayed(self) -> list[tuple[Place, int, int]]:
        """List (line, bytes, times) that nothing freed, most bytes first."""
        sums: dict[Place, list[int]] = collections.defaultdict(lambda: [0, 0])
        for entries in self.pending.values():
            for place, size in entries:
                sums[place][0] += size
                sums[place][1] += 1
        found = [(place, size, times) for place, (size, times) in sums.items()]
        return sorted(found, key=lambda one: -one[1])


def _taken(entries: list[Entry], size: int) -> int:
    """Remove entries that amount to a size; returns what is left of it."""
    for place in range(len(entries) - 1, -1, -1):
        if abs(entries[place][1] - size) <= NEAR * size:
            del entries[place]
            return 0
    while entries and size >= LEAST:
        place = max(range(len(entries)), key=lambda n: entries[n][1])
        line, amount = entries[place]
        if amount > size:
            entries[place] = (line, amount - size)
            return 0
        del entries[place]
        size -= amount
    return size
