"""What each batch, and the step that takes it, leaves on an accelerator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from dlcheck.observation import Allocation, Device, Reading, plain
from dlcheck.run.failures import is_ours, is_user

FIRST_LOOK = 4
EACH = 128
MOST_GROWN = 16
MOST_FRAMES = 12
Part = dict[str, Any]


class Figures(NamedTuple):
    """Bytes now: of live tensors, of the caching allocator, the highest since, of the driver."""

    allocated: int
    reserved: int
    peak: int
    driver: int | None


class Live(NamedTuple):
    """A live block: its bytes, and the (file, line, function) that led to it, innermost first."""

    size: int
    frames: tuple[tuple[str, int, str], ...]


class Accelerator(Protocol):
    """A device that batches can be moved to and whose memory can be read."""

    name: str

    def facts(self) -> Device:
        """Say what it is, and what was free on it before the first batch."""
        ...

    def move(self, batch: Any) -> tuple[Any, int]:
        """Move every tensor of a batch as a job would; returns the bytes moved too."""
        ...

    def figures(self) -> Figures:
        """Read the counters, and start the peak anew."""
        ...

    def blocks(self) -> list[Live]:
        """List the live blocks; those without frames were made before the history began."""
        ...

    def holds(self, step: Any) -> bool:
        """Tell whether what a step reaches lies on this device."""
        ...

    def stop(self) -> None:
        """Leave the history as it was found."""
        ...


class OnDevice:
    """Stands between the loader and the step of one split, and reads the device after both.

    Without an accelerator it hands the batch on. `waiting` finds one once the user's step has
    started it: dlcheck makes no context that nobody asked for.
    """

    def __init__(
        self,
        note: Callable[[Part], None],
        accelerator: Accelerator | None = None,
        *,
        waiting: Callable[[], Accelerator | None] | None = None,
    ) -> None:
        self.note = note
        self.accelerator = accelerator
        self.waiting = waiting
        self.moving = accelerator is not None
        self.handed: bool | None = None
        self.epoch = self.batch = self.readings = 0
        self.moved = 0
        self.stepped = self.looked_stepped = False
        self.first: dict[str, Allocation] | None = None
        if accelerator is not None:
            self.note(plain(accelerator.facts()))

    def give(self, batch: Any, step: Callable[[Any], Any] | None, epoch: int = 0) -> None:
        """Move a batch, run the step on it, let go of it, and read the device."""
        self.begin(epoch)
        self.pass_on(batch, step)
        self.stepped = step is not None
        self.attach()
        self.batch += 1
        if self.accelerator is not None and self.batch % self.stride() == 0:
            self.read(self.accelerator)

    def pass_on(self, batch: Any, step: Callable[[Any], Any] | None) -> None:
        """Give the step what it wants: the batch moved where its model is, else as loaded."""
        if self.accelerator is None or not self.moving:
            if step is not None:
                step(batch)
            return
        moved, size = self.accelerator.move(batch)
        if size > self.moved:
            self.moved = size
            self.note({"moved": size})
        if step is None:
            return
        if self.handed is None:
            self.handed = self.accelerator.holds(step)
        step(moved if self.handed else batch)

    def attach(self) -> None:
        """Read the device that the user's code has started, once it has."""
        if self.accelerator is None and self.waiting is not None:
            self.accelerator = self.waiting()
            if self.accelerator is not None:
                self.note(plain(self.accelerator.facts()))

    def stride(self) -> int:
        """Read each of the first batches, every second of the next, and so on: files stay small."""
        return int(1 << (self.readings // EACH))

    def read(self, accelerator: Accelerator) -> None:
        """Write one reading, and look at the live blocks where it is time."""
        now = accelerator.figures()
        self.readings += 1
        reading = Reading(self.epoch, self.batch, *now, stepped=self.stepped)
        self.note({"readings": [plain(reading)]})
        if self.batch == FIRST_LOOK and self.first is None:
            self.look()

    def begin(self, epoch: int) -> None:
        """Look at the live blocks when the first epoch is over: what comes later is growth.

        The first with a step counts, where the epochs before it had none.
        """
        if epoch == self.epoch:
            return
        if self.epoch == 0 or (self.stepped and not self.looked_stepped):
            self.look()
        self.epoch = epoch

    def look(self) -> None:
        """Remember which lines hold what now."""
        if self.accelerator is not None:
            self.first = census(self.accelerator.blocks())
            self.looked_stepped = self.stepped

    def finish(self) -> None:
        """Look at the live blocks once more, write what grew, and stop the history."""
        if self.accelerator is None:
            return
        if self.first is not None:
            last = census(self.accelerator.blocks())
            found = {key: plain(one) for key, one in grown(self.first, last)}
            self.note({"allocations": found})
        self.accelerator.stop()


def census(blocks: list[Live]) -> dict[str, Allocation]:
    """Sum live blocks by the line of the user's that asked for them."""
    found: dict[str, Allocation] = {}
    for block in blocks:
        frames = [frame for frame in block.frames if not is_ours(frame[0])]
        user = next((frame for frame in frames if is_user(frame[0])), None)
        if user is None:
            continue
        file, line, function = user
        key = f"{file}:{line} {function}"
        known = found.get(key)
        if known is None:
            way = tuple(f"{f}:{n} {name}" for f, n, name in reversed(frames[:MOST_FRAMES]))
            known = Allocation(file, line, function, frames=way)
        found[key] = Allocation(
            file, line, function, _text(file, line), known.frames,
            last=known.last + block.size, blocks=known.blocks + 1,
        )  # fmt: skip
    return found


def grown(
    first: Mapping[str, Allocation], last: Mapping[str, Allocation]
) -> Iterator[tuple[str, Allocation]]:
    """Lines that hold more at the last look than at the first, the most grown before others."""
    more = {key: one.last - (first[key].last if key in first else 0) for key, one in last.items()}
    for key in sorted(more, key=lambda key: (-more[key], key))[:MOST_GROWN]:
        if more[key] > 0:
            one = last[key]
            before = first[key].last if key in first else 0
            yield (
                key,
                Allocation(
                    one.file, one.line, one.function, one.text, one.frames,
                    before, one.last, one.blocks,
                ),
            )  # fmt: skip


def _text(file: str, line: int) -> str:
    import linecache

    return linecache.getline(file, line).strip()
