"""The scratch folder: how the processes of a run tell the parent what they saw.

Each process appends whole lines to a file of its own, opened for the one write, so that a crash
loses nothing, user code that closes every descriptor closes none of ours, and none is counted
among the user's. The pulse is a small shared mapping that outlives the process: how many samples
it asked for, and the last one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

PULSE_BYTES = 256
MOST_NAME = 200
HEAD = struct.Struct("<QdH")


class Scratch:
    """One process's side of the scratch folder. Safe to use after a fork."""

    def __init__(self, folder: str, hang_after: float) -> None:
        self.folder = folder
        self.interval = max(0.3, hang_after / 3.0)
        self.pid = -1
        self.asked = 0
        self.armed = 0.0
        self._map: mmap.mmap | None = None
        self._stacks: Any = None
        self._inode = -1

    def write(self, **line: Any) -> None:
        """Append one line of JSON for the parent."""
        text = json.dumps(line, separators=(",", ":"), ensure_ascii=True, default=str)
        path = str(Path(self.folder) / f"obs-{os.getpid()}.jsonl")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        data = memoryview(text.encode() + b"\n")
        with contextlib.suppress(OSError):
            descriptor = os.open(path, flags, 0o600)
            try:
                while data:
                    data = data[os.write(descriptor, data) :]
            finally:
                os.close(descriptor)

    def begin(self) -> None:
        """Give the process its pulse and its crash and hang dumps; once in each process.

        A forked process that re-arms the dump would wait for ever for the thread that counts the
        time in its parent, so the dump is disarmed around every fork.
        """
        if self.pid == os.getpid():
            return
        if self.pid == -1 and hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self.disarm, after_in_parent=self.rearm)
        self.pid = os.getpid()
        self.asked = 0
        self.armed = 0.0
        with contextlib.suppress(OSError, ValueError):
            path = Path(self.folder) / f"pulse-{self.pid}"
            with path.open("w+b") as file:
                file.truncate(PULSE_BYTES)
                self._map = mmap.mmap(file.fileno(), PULSE_BYTES)
        self.dump_stacks_on_crash()
        self.rearm()

    def dump_stacks_on_crash(self) -> None:
        """Open this process's file of stacks and point faulthandler at it."""
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            stacks = Path(self.folder) / f"stacks-{self.pid}.txt"
            self._stacks = stacks.open("a", encoding="utf-8")
            self._inode = os.fstat(self._stacks.fileno()).st_ino
            faulthandler.enable(self._stacks)

    def stacks_closed(self) -> bool:
        """Tell whether user code closed the file of stacks and may have its number in use."""
        try:
            return os.fstat(self._stacks.fileno()).st_ino != self._inode
        except (OSError, ValueError):
            return True

    def ask(self, sample: object) -> None:
        """Note that the process is about to produce this sample."""
        self.asked += 1
        if self._map is not None:
            name = str(sample).encode("utf-8", "replace")[:MOST_NAME]
            head = HEAD.pack(self.asked, time.time(), len(name))
            with contextlib.suppress(ValueError):
                self._map[: HEAD.size + len(name)] = head + name

    def rearm(self) -> None:
        """Start the time to the next dump of all stacks again; costs 60 us, so not every time."""
        now = time.monotonic()
        if self._stacks is None or now - self.armed < self.interval / 4:
            return
        self.armed = now
        if self.stacks_closed():
            self.dump_stacks_on_crash()
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            faulthandler.dump_traceback_later(self.interval, repeat=True, file=self._stacks)

    def disarm(self) -> None:
        """Stop the time to the next dump."""
        self.armed = 0.0
        faulthandler.cancel_dump_traceback_later()

    def failed(self) -> None:
        """Leave a mark that a failure of this process was written down."""
        self.write(failed=True)


def read_pulse(path: Path) -> tuple[int, float, str]:
    """Read (samples asked for, time of the last, its name); zeros when there is none."""
    try:
        data = path.read_bytes()
        asked, at, length = HEAD.unpack_from(data)
    except (OSError, struct.error):
        return 0, 0.0, ""
    return asked, at, data[HEAD.size : HEAD.size + length].decode("utf-8", "replace")
