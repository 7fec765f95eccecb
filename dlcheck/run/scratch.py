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
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

PULSE_BYTES = 256
MOST_NAME = 200
HIGH_DESCRIPTOR = 700
LINUX = sys.platform == "linux"
HEAD = struct.Struct("<QdH")
PULSE = struct.Struct(f"<QdH{MOST_NAME}s")


class Scratch:
    """One process's side of the scratch folder. Safe to use after a fork."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.pid = -1
        self.asked = 0
        self._map: mmap.mmap | None = None
        self._stacks = -1

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
        """Give the process its pulse, and the stacks that it leaves on a crash or on request.

        The parent asks for stacks by a real-time signal, and only of a process that has fallen
        silent. A timer inside the process (faulthandler.dump_traceback_later) would walk frames
        while they run, which crashes the process now and then.
        """
        if self.pid == os.getpid():
            return
        self.pid = os.getpid()
        self.asked = 0
        with contextlib.suppress(OSError, ValueError):
            path = Path(self.folder) / f"pulse-{self.pid}"
            with path.open("w+b") as file:
                file.truncate(PULSE_BYTES)
                self._map = mmap.mmap(file.fileno(), PULSE_BYTES)
        with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
            stacks = Path(self.folder) / f"stacks-{self.pid}.txt"
            self._stacks = _out_of_the_way(stacks)
            faulthandler.enable(self._stacks)
            faulthandler.register(stack_signal(), self._stacks, all_threads=True)

    def ask(self, sample: object) -> None:
        """Note that the process is about to produce this sample."""
        self.asked += 1
        if self._map is not None:
            name = str(sample).encode("utf-8", "replace")[:MOST_NAME]
            try:
                PULSE.pack_into(self._map, 0, self.asked, time.time(), len(name), name)
            except ValueError:  # the mapping was closed by user code
                self._map = None

    def failed(self) -> None:
        """Leave a mark that a failure of this process was written down."""
        self.write(failed=True)


def stack_signal() -> int:
    """Return the signal that asks a process for its stacks: one that no user code handles."""
    return int(getattr(signal, "SIGRTMAX", signal.SIGTERM)) - 5 if LINUX else int(signal.SIGUSR2)


def _out_of_the_way(path: Path) -> int:
    """Open a file for appending on a high descriptor, where code that closes the low ones ends."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        import fcntl

        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR)
    except (ImportError, OSError):
        return descriptor
    os.close(descriptor)
    return high


def read_pulse(path: Path) -> tuple[int, float, str]:
    """Read (samples asked for, time of the last, its name); zeros when there is none."""
    try:
        data = path.read_bytes()
        asked, at, length = HEAD.unpack_from(data)
    except (OSError, struct.error):
        return 0, 0.0, ""
    return asked, at, data[HEAD.size : HEAD.size + length].decode("utf-8", "replace")


def last_sample(folder: Path, pid: int | str) -> int | str | None:
    """Return the id of the sample that a process asked for last; None when there was none."""
    name = read_pulse(folder / f"pulse-{pid}")[2]
    return int(name) if name.isdigit() else name or None
