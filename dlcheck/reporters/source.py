"""The user's source: a short name for a file, its place in the repository, and one line of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dlcheck.findings import Finding, Report
from dlcheck.observation import Frame, Observation

MOST_BYTES = 4 << 20


def short(file: str) -> str:
    """Write a path relative to the current folder when it lies below it."""
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):
        return file
    return file if relative.startswith(os.pardir) else relative


def root() -> Path:
    """Return the checkout that the current folder lies in: what CI names files from."""
    try:
        here = Path.cwd()
    except OSError:
        return Path(os.sep)
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if workspace and here.is_relative_to(workspace):
        return Path(workspace)
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def within(file: str) -> str | None:
    """Write a path from the checkout's root, with slashes; None when it lies elsewhere."""
    try:
        relative = os.path.relpath(file, root())
    except (OSError, ValueError):
        return None
    return None if relative.startswith(os.pardir) else relative.replace(os.sep, "/")


def place(finding: Finding, report: Report) -> tuple[str, int | None] | None:
    """Return the file and line that a finding is shown at.

    For one that names none it is the line that made its loader, else the file of the target.
    """
    where = finding.where
    if where.file:
        return where.file, where.line
    split = report.observation.splits.get(where.split or "")
    loader = split.loader if split else None
    if loader and loader.file:
        return loader.file, loader.line
    file = report.target.partition(".py:")[0] + ".py" if ".py:" in report.target else report.target
    return (file, None) if os.path.isfile(file) else None  # noqa: PTH113 - may hold NUL


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
