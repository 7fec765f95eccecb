"""Forks of the probe: waited for, and ended when their time is over."""

from __future__ import annotations

import contextlib
import os
import signal
import time

POLL = 0.005


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
