"""What a process has open, mapped and running: handles, threads, children, shared memory."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from dlcheck.observers.counters import read

SHM = "/dev/shm"  # noqa: S108 - where shared memory lies, not a file of ours
DESCRIPTORS = "/proc/self/fd"
MAPS_BYTES = 1 << 24
NUMBERS = re.compile(r"\d+")
KINDS = (
    (f"{SHM}/", "memory"), ("/memfd:", "memory"), ("socket:", "socket"), ("pipe:", "pipe"),
    ("anon_inode:", "other"), ("/dev/", "other"), ("/proc/", "other"), ("/", "file"),
)  # fmt: skip


def handle_kinds() -> dict[str, int] | None:
    """Count open handles by kind: file, socket, pipe, memory, other; None where not to be had."""
    try:
        names = os.listdir(DESCRIPTORS)  # noqa: PTH208 - Path makes an object for each
    except OSError:
        return _elsewhere()
    found: dict[str, int] = {}
    for name in names:
        # The descriptor that lists the folder is closed by now.
        with contextlib.suppress(OSError):
            target = os.readlink(f"{DESCRIPTORS}/{name}")  # noqa: PTH115 - one object less
            kind = next((kind for start, kind in KINDS if target.startswith(start)), "other")
            found[kind] = found.get(kind, 0) + 1
    return found


def _elsewhere() -> dict[str, int] | None:
    with contextlib.suppress(Exception):
        import psutil

        process: Any = psutil.Process()
        count = process.num_handles() if sys.platform == "win32" else process.num_fds()
        return {"other": int(count)}
    return None


def children() -> int | None:
    """Count the child processes, those included that have ended and nobody waited for."""
    found = 0
    try:
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208
            with contextlib.suppress(FileNotFoundError):
                found += len(Path(f"/proc/self/task/{thread}/children").read_bytes().split())
    except OSError:
        return None
    return found


def mapped() -> int | None:
    """Return the bytes of shared memory files that this process maps, each file once."""
    files: dict[bytes, int] = {}
    maps = read("/proc/self/maps", MAPS_BYTES)
    for line in maps.splitlines():
        if b" /dev/shm/" in line or b" /memfd:" in line:
            fields = line.split(None, 5)
            low, _, high = fields[0].partition(b"-")
            files[fields[4]] = files.get(fields[4], 0) + int(high, 16) - int(low, 16)
    return sum(files.values()) if maps else None


class Segments:
    """The shared memory files of a run: those that it made since this object was made.

    A file is the run's when its name holds the pid of one of its processes, as torch's do, or
    when a process of the run was seen to make it (`follow`), whatever its name.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.before = set(_names())

    def held(self) -> tuple[int, int] | None:
        """Return (bytes, files); None where shared memory is no folder."""
        if not os.path.isdir(SHM):  # noqa: PTH112
            return None
        pids, made = self._pids(), self._made()
        total = count = 0
        for name in _names():
            ours = name in made or not pids.isdisjoint(NUMBERS.findall(name))
            if name in self.before or not ours:
                continue
            with contextlib.suppress(OSError):
                total += os.stat(f"{SHM}/{name}").st_blocks * 512  # noqa: PTH116
                count += 1
        return total, count

    def _pids(self) -> set[str]:
        with contextlib.suppress(OSError):
            names = os.listdir(self.folder)  # noqa: PTH208
            return {n.removeprefix("pulse-") for n in names if n.startswith("pulse-")}
        return set()

    def _made(self) -> set[str]:
        made: set[str] = set()
        with contextlib.suppress(OSError):
            for path in Path(self.folder).glob("segments-*"):
                made.update(path.read_text("utf-8", "replace").split("\n"))
        return made


def _names() -> list[str]:
    try:
        return [n for n in os.listdir(SHM) if not n.startswith("sem.")]  # noqa: PTH208
    except OSError:
        return []


def follow_segments(folder: str) -> None:
    """Note the names of the shared memory that Python code of this process and its forks makes.

    Names need not hold a pid, and other programs make segments meanwhile.
    """
    try:
        import _posixshmem  # type: ignore[import-not-found]
    except ImportError:
        return
    start = _posixshmem.shm_open
    if hasattr(start, "__wrapped__"):
        start.folder = folder
        return

    def shm_open(*args: Any, **kwargs: Any) -> int:
        descriptor: int = start(*args, **kwargs)
        flags = kwargs.get("flags", args[1] if len(args) > 1 else 0)
        # Without O_EXCL it may be another program's.
        if flags & os.O_CREAT and flags & os.O_EXCL:
            name = str(kwargs.get("path", args[0] if args else "")).lstrip("/")
            with (
                contextlib.suppress(OSError),
                open(f"{place()}/segments-{os.getpid()}", "a", encoding="utf-8") as file,  # noqa: PTH123
            ):
                file.write(name + "\n")
        return descriptor

    def place() -> str:
        return str(getattr(shm_open, "folder", folder))

    shm_open.__wrapped__ = start  # type: ignore[attr-defined]
    _posixshmem.shm_open = shm_open
