"""Tell a hang from slow work: no sample for a while, and the same stacks in two dumps."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlcheck.run.failures import frame_at
from dlcheck.run.scratch import read_pulse

DUMP = re.compile(r"^Timeout \(\d+:\d+:\d+(?:\.\d+)?\)!$", re.MULTILINE)
LINE = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.+)$')
CRASH = re.compile(r"^(Fatal Python error|Windows fatal exception): (?P<what>.*)$", re.MULTILINE)
STUCK_LIMIT = 4.0
MOST_STACKS = 6_000


@dataclass
class Watchdog:
    """Follows the pulses of all processes of a run."""

    scratch: Path
    hang_after: float
    last: float = field(default_factory=time.monotonic)
    pulses: dict[str, int] = field(default_factory=dict)

    def alive(self) -> None:
        """Note a sign of life."""
        self.last = time.monotonic()

    def silent_for(self) -> float:
        """Return the seconds since any process asked for a sample or wrote a line."""
        for path in self.scratch.glob("pulse-*"):
            asked = read_pulse(path)[0]
            if self.pulses.get(path.name) != asked:
                self.pulses[path.name] = asked
                self.alive()
        return time.monotonic() - self.last

    def hang(self) -> dict[str, Any] | None:
        """Return a Failure in JSON when nothing moves any more."""
        silent = self.silent_for()
        if silent < self.hang_after:
            return None
        stuck = {path: dumps[-1] for path, dumps in self.dumps() if same_stacks(dumps)}
        moving = [path for path, dumps in self.dumps() if path not in stuck]
        if moving and silent < STUCK_LIMIT * self.hang_after:
            return None
        chosen = self.guilty(stuck)
        pid = chosen.stem.removeprefix("stacks-") if chosen else ""
        stacks = stuck.get(chosen, "") if chosen else ""
        sample = read_pulse(self.scratch / f"pulse-{pid}")[2]
        detail: dict[str, Any] = {"seconds": round(silent, 1), "stacks": stacks[:MOST_STACKS]}
        if sample:
            detail["last_sample"] = int(sample) if sample.isdigit() else sample
        return {"phase": "hang", "frames": frames_in(stacks), "detail": detail}

    def dumps(self) -> Iterator[tuple[Path, list[str]]]:
        """Yield each process's file of stacks with its dumps, the oldest first."""
        for path in sorted(self.scratch.glob("stacks-*")):
            parts = DUMP.split(path.read_text("utf-8", "replace"))[1:]
            if parts and _lives(path):
                yield path, parts

    def guilty(self, stuck: dict[Path, str]) -> Path | None:
        """Choose the process to speak of: a stuck one in user code, workers before the main."""
        order = sorted(stuck, key=lambda path: path.stat().st_ctime, reverse=True)
        in_user_code = [p for p in order if any(f["user"] for f in frames_in(stuck[p]))]
        return next(iter(in_user_code or order), None)


def _lives(path: Path) -> bool:
    pid = path.stem.removeprefix("stacks-")
    return not Path("/proc/self").exists() or Path(f"/proc/{pid}").exists()


def same_stacks(dumps: list[str]) -> bool:
    """Tell whether the last two dumps show the same lines in every thread."""
    return len(dumps) > 1 and dumps[-1].strip() == dumps[-2].strip()


def frames_in(stacks: str) -> list[dict[str, Any]]:
    """Read the frames of the thread that is in user code (else the first), outermost first."""
    threads: list[list[dict[str, Any]]] = []
    for block in re.split(r"^(?:Thread|Current thread) .*$", stacks, flags=re.MULTILINE):
        frames = []
        for line in block.splitlines():
            match = LINE.match(line)
            if match:
                frames.append(frame_at(match["file"], int(match["line"]), match["function"]))
        if frames:
            threads.append(frames[::-1])
    with_user = [frames for frames in threads if any(frame["user"] for frame in frames)]
    chosen = next(iter(with_user[::-1] or threads), [])
    return [frame for frame in chosen if "dlcheck" not in Path(frame["file"]).parts or frame["user"]]


def crash_stacks(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """Return what faulthandler wrote of a crash, and the frames of the thread that crashed."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return "", []
    found = CRASH.search(text)
    if not found:
        return "", []
    crash = text[found.start() :]
    current = crash.partition("Current thread")[2] or crash
    return crash[:MOST_STACKS], frames_in(current.partition("\n\n")[0])
