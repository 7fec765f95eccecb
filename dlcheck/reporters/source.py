"""The user's source: a short name for a file, and one line of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dlcheck.observation import Frame, Observation

MOST_BYTES = 4 << 20


def short(file: str) -> str:
    """Write a path relative to the current folder when it lies below it."""
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):
        return file
    return file if relative.startswith(os.pardir) else relative


def line(file: str, number: int | None, observation: Observation) -> str:
    """Return a line as the traceback quoted it, else as the file has it now; else nothing."""
    if not number or number < 1:
        return ""
    for frame in _frames(observation):
        if frame.text.strip() and (frame.file, frame.line) == (file, number):
            return frame.text
    return _read(file, number)


def _frames(observation: Observation) -> Iterator[Frame]:
    groups = [observation.failures, *(split.failures for split in observation.splits.values())]
    for failures in groups:
        for failure in failures.values():
            yield from failure.frames


def _read(file: str, number: int) -> str:
    """Read a line of a regular file: a name may be a pipe, a device, `<string>` or nonsense."""
    try:
        path = Path(file)
        if not stat.S_ISREG(path.stat().st_mode):
            return ""
        with path.open("rb") as stream:
            lines = stream.read(MOST_BYTES).splitlines()
    except (OSError, ValueError):
        return ""
    return lines[number - 1].decode("utf-8", "backslashreplace") if number <= len(lines) else ""
