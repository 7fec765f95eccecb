"""What this machine, or the container around us, has room for."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
# cgroup v1 writes a number near 2**63 where there is no limit.
NO_LIMIT = 1 << 60


def observed() -> dict[str, int | str]:
    """Return bytes of `memory` and `shm` and the most open `handles`, as far as they are known.

    `memory_from` says whether the memory is the machine's or that of the cgroup.
    """
    known: dict[str, int | str] = {}
    total, grouped = machine_memory(), group_memory()
    if grouped is not None and (total is None or grouped < total):
        known |= {"memory": grouped, "memory_from": "cgroup"}
    elif total is not None:
        known |= {"memory": total, "memory_from": "machine"}
    with contextlib.suppress(OSError, AttributeError):
        room = os.statvfs("/dev/shm")  # noqa: S108 - where shared memory lives
        known["shm"] = room.f_frsize * room.f_blocks
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            known["handles"] = soft
    return known


def machine_memory() -> int | None:
    """Return the bytes of physical memory."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def group_memory() -> int | None:
    """Return the lowest memory limit of the cgroups that this process is in, v2 and v1."""
    limits = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                limits += _upwards(GROUPS, path, "memory.max")
            elif "memory" in controllers.split(","):
                limits += _upwards(GROUPS / "memory", path, "memory.limit_in_bytes")
    return min(limits, default=None)


def _upwards(root: Path, path: str, name: str) -> list[int]:
    """Read a limit in a group and in those around it; a container sees its own as the root."""
    found = []
    folder = root / path.lstrip("/")
    for place in (folder, *folder.parents):
        if root not in (place, *place.parents):
            break
        with contextlib.suppress(OSError, ValueError):
            limit = int((place / name).read_text(encoding="ascii"))
            if limit < NO_LIMIT:
                found.append(limit)
    return found
