"""Clears up after a parent that was killed: a process of its own that waits for the parent's end.

Started by path with `-I -S`; reads lines `child PID` and `done` on stdin. When stdin ends without
`done`, the parent is gone: the child's session is killed and the scratch folder removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

HELPERS_LEAVE = 2.0
POLL = 0.05
SHM = "/dev/shm"  # noqa: S108 - where torch puts the tensors that workers share


def session_members(leader: int) -> list[int]:
    """List the live processes of the session that `leader` began, itself included."""
    return [pid for pid in _pids() if in_session(pid, leader)]


def in_session(pid: int, leader: int) -> bool:
    """Tell whether a process lives in the session that `leader` began."""
    try:
        return os.getsid(pid) == leader and not _is_zombie(pid)
    except OSError:
        return False


def _pids() -> list[int]:
    if os.path.isdir("/proc/self"):  # noqa: PTH112
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    import psutil

    return list(psutil.pids())


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return False


def end_session(leader: int) -> None:
    """End what is left of a session.

    Python's resource tracker and torch's manager of shared memory end by themselves once their
    clients are gone, and remove the segments; they get the time to do so.
    """
    if not hasattr(os, "getsid"):
        return
    if leader in session_members(leader):
        with contextlib.suppress(OSError):
            os.kill(leader, signal.SIGKILL)
    patience = time.monotonic() + HELPERS_LEAVE
    for pid in session_members(leader):
        if not _cleans_up(pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    while session_members(leader) and time.monotonic() < patience:
        time.sleep(POLL)
    for pid in session_members(leader):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _cleans_up(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            command = file.read()
    except OSError:
        return False
    return b"resource_tracker" in command or b"torch_shm_manager" in command


def remove_segments(pids: set[int], scratch: str) -> None:
    """Remove the shared-memory segments that the processes of a run made and left.

    Torch names its own `torch_PID_`; those that Python code made are noted in the scratch folder.
    """
    for name in _noted(scratch):
        with contextlib.suppress(OSError, ValueError):
            os.unlink(os.path.join(SHM, os.path.basename(name)))  # noqa: PTH108, PTH118, PTH119
    with contextlib.suppress(OSError):
        for name in os.listdir(SHM):  # noqa: PTH208
            parts = name.split("_")
            if (
                parts[0] == "torch"
                and len(parts) > 1
                and parts[1].isdigit()
                and int(parts[1]) in pids
            ):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(SHM, name))  # noqa: PTH108, PTH118


def _noted(scratch: str) -> set[str]:
    names: set[str] = set()
    with contextlib.suppress(OSError):
        for file in os.listdir(scratch):  # noqa: PTH208
            if file.startswith("segments-"):
                path = os.path.join(scratch, file)  # noqa: PTH118
                with open(path, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
                    names.update(filter(None, lines.read().split("\n")))
    return names


def processes_of(scratch: str) -> set[int]:
    """List the processes that wrote to a scratch folder."""
    pids: set[int] = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(scratch):  # noqa: PTH208
            digits = name.partition("-")[2].partition(".")[0]
            if digits.isdigit():
                pids.add(int(digits))
    return pids


def clear(leader: int, scratch: str) -> None:
    """End the session, and remove its segments and the scratch folder."""
    if leader > 0:
        end_session(leader)
    remove_segments(processes_of(scratch) | {leader}, scratch)
    shutil.rmtree(scratch, ignore_errors=True)


def main(scratch: str) -> None:
    """Wait for the parent's end."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    leader = 0
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "done":
            return
        if word == "child":
            leader = int(rest)
    clear(leader, scratch)


if __name__ == "__main__":
    main(sys.argv[1])
