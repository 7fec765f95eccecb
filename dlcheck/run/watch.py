"""What one process is watching, and what it has written of it."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlcheck.observers.handles import Segments
from dlcheck.observers.memory import Meter
from dlcheck.observers.values import Memory
from dlcheck.run import torch_private
from dlcheck.run.failures import keyed
from dlcheck.run.scratch import Scratch

PR_SET_PDEATHSIG = 1
NOW = "now.json"


class Watch:
    """What this process is watching: where to write, and for which split."""

    def __init__(self, scratch: Scratch, split: str = "") -> None:
        self.scratch = scratch
        self.split = split
        self.names: tuple[str, ...] = ()
        self.spread = False
        self.driving = False
        self.hooked = False
        self.values = True
        self.metering = 0
        self.persistent = False
        # Datasets of the other splits, by id: a forked worker has them where they were.
        self.foreign: list[int] = []
        self.spawned = False
        self.loaders = 0
        self.frozen = False
        self.segments: Segments | None = None
        self.meters: dict[str, Meter] = {}
        self.epoch = 0
        self.made_at: dict[int, tuple[str, int]] = {}
        self.written: BaseException | None = None
        self.state: dict[str, Any] = {}
        self.depth = threading.local()
        self.memories: dict[str, Memory] = collections.defaultdict(Memory)

    def note(self, **part: Any) -> None:
        """Write a part of the current split."""
        self.scratch.write(obs={"splits": {self.split: part}})

    def begin_epoch(self, number: int) -> None:
        """Say for all processes which epoch of which split begins; workers may be older than it."""
        self.epoch = number
        self.driving = True
        self.loaders = 0
        self.say_now()

    @contextlib.contextmanager
    def spreading(self) -> Iterator[None]:
        """Count what is read as the spread."""
        self.spread = True
        self.say_now()
        try:
            yield
        finally:
            self.spread = False

    def say_now(self) -> None:
        """Write where the drive is for workers that cannot be told."""
        now = [
            self.epoch, self.split, self.names, self.spread, self.values, self.metering,
            self.foreign,
        ]  # fmt: skip
        with contextlib.suppress(OSError):
            Path(self.scratch.folder, NOW).write_text(json.dumps(now), encoding="utf-8")

    def follow(self) -> bool:
        """Tell whether a loader is being driven; a worker reads which epoch of which split it is.

        Loaders are iterated before that too, by code that measures a dataset as it builds it.
        """
        if torch_private.worker_number() is not None:
            with contextlib.suppress(OSError, ValueError):
                now = json.loads(Path(self.scratch.folder, NOW).read_bytes())
                self.epoch, self.split, names, self.spread, self.values, *rest = now
                self.metering, self.foreign = rest
                self.names = tuple(names)
                self.driving = True
        return self.driving

    def freeze(self) -> None:
        """Keep what there is out of collections: in a worker one would un-share all of it.

        What the user's code makes from then on is collected as ever.
        """
        if not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
            self.frozen = True

    def thaw(self) -> None:
        """Undo `freeze`."""
        if self.frozen:
            gc.unfreeze()
            self.frozen = False

    def meter(self, worker: int | None = None) -> Meter | None:
        """Return what reads the counters of this process; None when nobody asked for them."""
        if not self.metering or (worker or 0) >= abs(self.metering):
            return None
        found = self.meters.get(self.split)
        if found is None or found.pid != os.getpid():
            found = self.meters[self.split] = self._new_meter(worker)
        return found

    def _new_meter(self, worker: int | None) -> Meter:
        split, name = self.split, "main"
        about: dict[str, Any] = {"role": "main"}
        if worker is not None:
            more = f".{self.loaders}" if self.loaders > 1 else ""
            name = (f"w{worker}" if self.persistent else f"e{self.epoch}w{worker}") + more
            about = {
                "role": "worker", "number": worker, "born": self.epoch,
                "persistent": self.persistent,
            }  # fmt: skip

        def write(part: dict[str, Any]) -> None:
            self.scratch.write(obs={"splits": {split: {"processes": {name: part}}}})

        return Meter(write, about, None if worker is not None else self.segments)

    def fail(self, failure: dict[str, Any], error: BaseException) -> None:
        """Write a failure of the current split, once for each exception."""
        self.written = error
        self.note(failures=keyed(failure | {"epoch": self.epoch}))
        self.scratch.failed()

    def knows(self, error: BaseException) -> bool:
        """Tell whether the exception, or what it was raised from, was written already."""
        chain: BaseException | None = error
        for _ in range(20):
            if chain is None:
                return False
            if chain is self.written:
                return True
            chain = chain.__cause__ or chain.__context__
        return False

    @contextlib.contextmanager
    def outermost(self) -> Iterator[bool]:
        """Yield whether no other fetch is under way in this thread."""
        depth = getattr(self.depth, "n", 0)
        self.depth.n = depth + 1
        try:
            yield depth == 0
        finally:
            self.depth.n = depth


def die_with_parent() -> None:
    """Ask Linux to end this process when the one that started it ends; nothing elsewhere."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
