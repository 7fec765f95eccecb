"""The user's exceptions as data."""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import sysconfig
import traceback
from functools import lru_cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

MOST_TEXT = 2_000
MOST_FRAMES = 60
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120
EXAMPLES = os.path.join(OURS, "examples") + os.sep  # noqa: PTH118
COLLATE = os.path.join("torch", "utils", "data", "_utils", "collate.py")  # noqa: PTH118


@lru_cache(maxsize=4096)
def is_user(file: str) -> bool:
    """Tell the user's own files from installed packages, the standard library and ours."""
    if file.startswith("<") or is_ours(file):
        return False
    if {"site-packages", "dist-packages"} & set(Path(file).parts):
        return False
    return not file.startswith(_standard_folders())


@lru_cache(maxsize=1)
def _standard_folders() -> tuple[str, ...]:
    """Return where the standard library lies, as named and as it is."""
    paths = sysconfig.get_paths()
    named = [paths[key] for key in ("stdlib", "platstdlib")]
    return tuple({folder + os.sep for one in named for folder in (one, os.path.realpath(one))})


def is_ours(file: str) -> bool:
    """Tell dlcheck's own files, which no traceback needs to show."""
    return file.startswith(OURS) and not file.startswith(EXAMPLES)


def safe_text(error: BaseException) -> str:
    """Return str(error), or what can be said of it when that raises."""
    try:
        text = str(error)
    except BaseException as inner:  # noqa: BLE001 - __str__ is user code
        return f"<its __str__ raised {type(inner).__name__}>"
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "..."


def frames_of(trace: TracebackType | None) -> list[dict[str, Any]]:
    """List the lines of a traceback, outermost first, without our own, as Frame in JSON."""
    frames: list[dict[str, Any]] = []
    for frame, line in traceback.walk_tb(trace):
        file = frame.f_code.co_filename
        if not is_ours(file):
            frames.append(frame_at(file, line, frame.f_code.co_name))
    if len(frames) > MOST_FRAMES:
        frames = [*frames[: MOST_FRAMES // 2], *frames[-MOST_FRAMES // 2 :]]
    return frames


def frame_at(file: str, line: int, function: str) -> dict[str, Any]:
    """Return one Frame in JSON, with its source line where the file can be read."""
    text = ""
    with contextlib.suppress(Exception):
        text = linecache.getline(file, line).strip()[:300]
    return {"file": file, "line": line, "function": function, "text": text, "user": is_user(file)}


def caller(start: FrameType | None = None) -> FrameType | None:
    """Return the innermost frame of user code on this thread's stack, at or above `start`."""
    frame: FrameType | None = start or sys._getframe(1)  # noqa: SLF001
    while frame is not None and not is_user(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def failure_of(error: BaseException, phase: str, **more: Any) -> dict[str, Any]:
    """Return a Failure in JSON."""
    failure: dict[str, Any] = {
        "phase": phase,
        "exception": type(error).__name__,
        "message": safe_text(error),
        "frames": frames_of(error.__traceback__),
    }
    detail = dict(more.pop("detail", {}))
    if any(frame["file"].endswith(COLLATE) for frame in failure["frames"]):
        detail["default_collate"] = True
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        detail["cause"] = f"{type(cause).__name__}: {safe_text(cause)[:500]}"
    failure["detail"] = detail
    return failure | more


def keyed(failure: dict[str, Any]) -> dict[str, Any]:
    """Return {key: failure}, the key as Observation makes it."""
    from dlcheck.observation import failure_from_json

    return {failure_from_json(failure).key: failure}
