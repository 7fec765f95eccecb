"""Forks of the probe: waited for, and ended when their time is over."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from dlcheck.run.watch import die_with_parent

POLL = 0.005


def apart(work: Callable[[], bool], seconds: float) -> bool:
    """Do work in a fork; True when it says that it did, and ended within its seconds."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            die_with_parent()
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return ended(pid, seconds)


def ended(pid: int, seconds: float) -> bool:
    """Wait for a process of ours to end by itself; else end it."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(POLL)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return False
