"""What a process's own counters say: microseconds for heap and blocks, milliseconds for the rest.

On Linux with glibc everything is read by ctypes and from /proc; elsewhere psutil answers what it
can, where the user's environment has it, and the rest is None.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dlcheck.run.scratch import LINUX

KIB = 1024
STATUS_BYTES = 16_384
MALLINFO = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
    "keepcost",
)  # fmt: skip
OTHER_ALLOCATORS = (b"jemalloc", b"tcmalloc", b"mimalloc", b"libasan")
RESET_PEAK = b"5"


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in MALLINFO)


@lru_cache(maxsize=1)
def _libc() -> Any:
    """Return glibc through PyDLL: its calls are too short to let another thread in."""
    if not LINUX or _other_allocator():
        return None
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.PyDLL(None)
        library.mallinfo2.restype = _Mallinfo
        library.mallinfo2.argtypes = []
        library.malloc_trim.argtypes = [ctypes.c_size_t]
        return library
    return None


def _other_allocator() -> bool:
    """Tell whether another library answers malloc: glibc's own figures then stand still."""
    maps = read("/proc/self/maps", 1 << 22)
    return any(name in maps for name in OTHER_ALLOCATORS)


@lru_cache(maxsize=1)
def heap_reader() -> Callable[[], int] | None:
    """Return what reads the live C heap in bytes, arenas and mapped blocks; None without one."""
    library = _libc()
    if library is not None:
        mallinfo2 = library.mallinfo2

        def glibc() -> int:
            info = mallinfo2()
            return int(info.uordblks) + int(info.hblkhd)

        return glibc
    if LINUX:
        return None
    with contextlib.suppress(Exception):
        import psutil

        psutil.heap_info()
        return lambda: int(sum(psutil.heap_info()[:2]))
    return None


def heap() -> int | None:
    """Return the live bytes of the C heap; None where they cannot be had."""
    reader = heap_reader()
    return None if reader is None else reader()


def blocks() -> int | None:
    """Return the number of memory blocks that Python's own allocator has in use."""
    count = getattr(sys, "getallocatedblocks", None)
    return None if count is None else int(count())


def trim() -> None:
    """Give free memory of the heap back to the system, so that fragments are not taken for use."""
    library = _libc()
    if library is not None:
        library.malloc_trim(0)


def rollup() -> dict[str, int]:
    """Return smaps_rollup in bytes: Rss, Anonymous, Private_Dirty; empty elsewhere."""
    found: dict[str, int] = {}
    for line in read("/proc/self/smaps_rollup").splitlines()[1:]:
        name, _, rest = line.partition(b":")
        with contextlib.suppress(ValueError, IndexError):
            found[name.decode()] = int(rest.split()[0]) * KIB
    return found


def status() -> dict[str, int]:
    """Return VmRSS and VmHWM in bytes and Threads; what there is of them."""
    found: dict[str, int] = {}
    for line in read("/proc/self/status").splitlines():
        name, _, rest = line.partition(b":")
        if name in {b"VmRSS", b"VmHWM"}:
            found[name.decode()] = int(rest.split()[0]) * KIB
        elif name == b"Threads":
            found["Threads"] = int(rest)
    return found


def reset_peak() -> bool:
    """Let VmHWM begin again at what is resident now; False where that cannot be done."""
    try:
        descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY)
    except OSError:
        return False
    try:
        return os.write(descriptor, RESET_PEAK) == len(RESET_PEAK)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def missing() -> tuple[str, ...]:
    """Name the counters that cannot be had here, each with the reason."""
    lost = []
    if heap_reader() is None:
        why = "another allocator than glibc's" if _other_allocator() else "no mallinfo2, no psutil"
        lost.append(f"heap: {why}")
    if not os.access("/proc/self/smaps_rollup", os.R_OK):
        lost.append("anonymous: no /proc/self/smaps_rollup")
    if not os.access("/proc/self/clear_refs", os.W_OK):
        lost.append("peak: /proc/self/clear_refs cannot be written")
    return tuple(lost)


def read(path: str, most: int = STATUS_BYTES) -> bytes:
    """Read a file of /proc whole, without a buffer that outlives the call."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    parts = []
    try:
        while most > 0 and (part := os.read(descriptor, min(most, 1 << 16))):
            parts.append(part)
            most -= len(part)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return b"".join(parts)
