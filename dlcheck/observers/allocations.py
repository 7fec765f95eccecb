"""Which lines allocate the memory that stays.

Python's and numpy's by tracemalloc; torch's storages by a dispatch mode that remembers the line.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

from dlcheck.run.failures import caller, is_user

DEPTH = 24
MOST_STORAGES = 100_000
SWEEP = 2_000
LEAST = 256
Line = tuple[str, int]
Held = dict[Line, tuple[int, int]]


class Allocations:
    """Counts what is alive by the line that allocated it, since `begin`."""

    def __init__(self) -> None:
        self.mode: Any = None
        self.ledger: Ledger | None = None
        self.began = False

    def begin(self) -> None:
        """Start both trackers; what is alive already stays unknown."""
        with contextlib.suppress(Exception):
            self.mode, self.ledger = storages()
            with self.mode:
                # What a first operation imports in older versions is not the user's.
                sys.modules["torch"].empty(1)
        if not tracemalloc.is_tracing():
            tracemalloc.start(DEPTH)
            self.began = True

    def end(self) -> None:
        if self.began:
            tracemalloc.stop()
        self.mode = self.ledger = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Remember the storages that are made meanwhile in this thread."""
        with self.mode if self.mode is not None else contextlib.nullcontext():
            yield

    def held(self) -> Held:
        """Return bytes and blocks alive by the user's line."""
        found: dict[Line, list[int]] = collections.defaultdict(lambda: [0, 0])
        lines: dict[Any, Line | None] = {}
        for trace in tracemalloc.take_snapshot().traces:
            frames = trace.traceback
            if frames not in lines:
                lines[frames] = user_line(frames)
            line = lines[frames]
            if line is not None:
                found[line][0] += trace.size
                found[line][1] += 1
        for line, size in self.ledger.alive() if self.ledger is not None else ():
            found[line][0] += size
            found[line][1] += 1
        return {line: (size, count) for line, (size, count) in found.items()}


def user_line(frames: Any) -> Line | None:
    """Return the innermost line of the user's in a traceback, which begins at its outermost."""
    for frame in reversed(frames):
        if is_user(frame.filename):
            return frame.filename, frame.lineno
    return None


def kept(helds: list[Held]) -> list[tuple[Line, list[int], int]]:
    """List lines that hold more at each look: (line, bytes by window, blocks), most bytes first.

    Of one window alone where nothing grew in all of them: that came once, but is all there is.
    """
    rows = []
    for line in helds[-1]:
        sizes = [held.get(line, (0, 0))[0] for held in helds]
        grew = [after - before for before, after in itertools.pairwise(sizes)]
        blocks = helds[-1][line][1] - helds[0].get(line, (0, 0))[1]
        if sum(grew) >= LEAST:
            rows.append((line, grew, blocks))
    rows.sort(key=lambda row: (min(row[1]) <= 0, -sum(row[1])))
    return rows


class Ledger:
    """Knows the storages that are alive by the user's line, without keeping them alive."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self.known: dict[int, tuple[Any, Line, int]] = {}
        self.since = 0

    def note(self, value: Any) -> None:
        """Note the storage of a tensor that an operation returned."""
        if value.device.type != "cpu":
            return
        storage = value.untyped_storage()
        size = storage.nbytes()
        key = storage._cdata  # noqa: SLF001 - the identity of a storage
        if size < LEAST or (key in self.known and not self._expired(self.known[key][0])):
            return
        frame = caller(sys._getframe(1))  # noqa: SLF001 - only frames tell the line
        if frame is None or len(self.known) > MOST_STORAGES:
            return
        line = (frame.f_code.co_filename, frame.f_lineno)
        self.known[key] = (storage._weak_ref(), line, size)  # noqa: SLF001 - as torch's reductions
        self.since += 1
        if self.since > SWEEP:
            self.since = 0
            self.alive()

    def alive(self) -> list[tuple[Line, int]]:
        """Forget the storages that are gone, and return the others."""
        self.known = {k: v for k, v in self.known.items() if not self._expired(v[0])}
        return [(line, size) for _, line, size in self.known.values()]

    def _expired(self, weak: Any) -> bool:
        gone: bool = self.storage._expired(weak)  # noqa: SLF001 - as torch's reductions
        if gone:
            self.storage._free_weak_ref(weak)  # noqa: SLF001
        return gone


def storages() -> tuple[Any, Ledger]:
    """Make the dispatch mode that fills a ledger, where torch has been imported."""
    torch = sys.modules["torch"]
    from torch.utils._python_dispatch import TorchDispatchMode

    ledger = Ledger(torch.UntypedStorage)

    class Storages(TorchDispatchMode):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Stay plain Python: torch would import its compiler for nothing."""
            return False

        def __torch_dispatch__(
            self,
            func: Any,
            types: Any,
            args: Any = (),
            kwargs: Any = None,
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            with contextlib.suppress(Exception):
                for one in out if isinstance(out, tuple | list) else (out,):
                    if isinstance(one, torch.Tensor):
                        ledger.note(one)
            return out

    return Storages(), ledger
