"""Every block of memory that torch asks for while code runs on fake tensors: no memory, no time.

Blocks are told by their storages, whose end a weak reference sees. What a block was for is often
known only later (what a backward pass leaves as a gradient), so the parts of the peak are read
from the whole history when it is complete.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dlcheck.run import torch_private

# The CUDA caching allocator rounds what it is asked for up to this many bytes.
GRAIN = 512
ALIVE = 1 << 62


@dataclass
class Block:
    """One storage: its bytes, and the events at which it came and went."""

    size: int
    born: int
    phase: str
    died: int = ALIVE
    kind: str = ""


@dataclass
class Peak:
    """The fullest moment of one phase."""

    size: int = 0
    event: int = 0


@dataclass
class Ledger:
    """The blocks of a run. `phase` is what the run is at; each has a peak of its own."""

    phase: str = ""
    event: int = 0
    size: int = 0
    live: dict[int, Block] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    peaks: dict[str, Peak] = field(default_factory=dict)

    def begin(self, phase: str) -> None:
        """Enter a phase; what is live counts towards its peak."""
        self.phase = phase
        self._look()

    def forget_peaks(self) -> None:
        """Start the peaks anew, for the next step."""
        self.peaks = {}

    def add(self, tensor: Any) -> None:
        """Count the storage of a tensor, once."""
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - the identity of a storage; its Python object varies
        if key in self.live:
            return
        self.event += 1
        block = Block(-(-storage.nbytes() // GRAIN) * GRAIN, self.event, self.phase)
        self.live[key] = block
        self.blocks.append(block)
        self.size += block.size
        weakref.finalize(storage, self._gone, key, block).atexit = False
        self._look()

    def mark(self, tensor: Any, kind: str) -> None:
        """Say what a tensor's memory is for."""
        block = self.live.get(tensor.untyped_storage()._cdata)  # noqa: SLF001
        if block is not None and not block.kind:
            block.kind = kind

    def mark_phase(self, phase: str, kind: str) -> None:
        """Say what all that is live and was made in a phase is for."""
        for block in self.live.values():
            if block.phase == phase and not block.kind:
                block.kind = kind

    def parts(self, event: int) -> dict[str, int]:
        """Bytes live at an event, by kind."""
        found: dict[str, int] = {}
        for block in self.blocks:
            if block.born <= event < block.died:
                kind = block.kind or "temporaries"
                found[kind] = found.get(kind, 0) + block.size
        return found

    def _gone(self, key: int, block: Block) -> None:
        self.event += 1
        block.died = self.event
        self.size -= block.size
        self.live.pop(key, None)

    def _look(self) -> None:
        peak = self.peaks.setdefault(self.phase, Peak())
        if self.size > peak.size:
            peak.size, peak.event = self.size, self.event


@contextlib.contextmanager
def keeping(ledger: Ledger) -> Iterator[None]:
    """Run torch on fake tensors, and keep the ledger of what it asks for.

    Raises:
        ImportError, AttributeError: this torch has no fake tensors where we know them.
    """
    with torch_private.fake_mode(), torch_private.dispatches(ledger.add):
        yield
