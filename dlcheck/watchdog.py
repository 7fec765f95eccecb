"""Tell a hang from slow work: no sample for a while, the same stacks in two dumps, and idle.

A process that computes or reads at one line (a large file, a long C call, an import from a cold
disk) shows the same stacks too; it gets four times the patience before it is called stuck.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlcheck.run.failures import frame_at, is_ours
from dlcheck.run.scratch import LINUX, last_sample, read_pulse, stack_signal

LINE = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.+)$')
CRASH = re.compile(r"^(Fatal Python error|Windows fatal exception): (?P<what>.*)$", re.MULTILINE)
STUCK_LIMIT = 4.0
# Of one core: low, since a crowded machine gives a process that computes much less than all.
BUSY_SHARE = 0.1
BUSY_BYTES = 1 << 20
MOST_STACKS = 6_000
PAGE = 4_096
STACKS_COME = 0.2


@dataclass
class Watchdog:
    """Follows the pulses of all processes of a run."""

    scratch: Path
    hang_after: float
    last: float = field(default_factory=time.monotonic)
    pulses: dict[str, int] = field(default_factory=dict)
    work: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    asked_again: bool = False
    marks: dict[Path, list[int]] = field(default_factory=dict)

    def alive(self) -> None:
        """Note a sign of life."""
        self.last = time.monotonic()
        self.work.clear()
        self.asked_again = False

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
        if silent > self.hang_after / 2 and not self.work:
            self.ask_for_stacks()
            self.work = {path.name: work_of(_pid(path)) for path in self.scratch.glob("stacks-*")}
        if silent < self.hang_after:
            return None
        if not self.asked_again:
            self.asked_again = True
            self.ask_for_stacks()
            time.sleep(STACKS_COME)
        stuck = {
            path: dumps[-1]
            for path, dumps in self.dumps()
            if same_stacks(dumps) and not self.busy(path)
        }
        moving = [path for path, _ in self.dumps() if path not in stuck]
        if moving and silent < STUCK_LIMIT * self.hang_after:
            return None
        stuck = stuck or {path: dumps[-1] for path, dumps in self.dumps()}
        chosen = self.guilty(stuck)
        pid = _pid(chosen) if chosen else ""
        stacks = stuck.get(chosen, "") if chosen else ""
        sample = last_sample(self.scratch, pid)
        detail: dict[str, Any] = {"seconds": round(silent, 1), "stacks": stacks[:MOST_STACKS]}
        if sample is not None:
            detail["last_sample"] = sample
        return {"phase": "hang", "frames": frames_in(stacks), "detail": detail}

    def ask_for_stacks(self) -> None:
        """Have each process that listens write the stacks of all its threads."""
        for path in self.scratch.glob("stacks-*"):
            if listens(_pid(path)):
                self.marks.setdefault(path, []).append(path.stat().st_size)
                with contextlib.suppress(OSError):
                    os.kill(int(_pid(path)), stack_signal())

    def dumps(self) -> Iterator[tuple[Path, list[str]]]:
        """Yield each living process's file of stacks with its last two dumps."""
        for path in sorted(self.scratch.glob("stacks-*")):
            data = path.read_bytes()
            marks = [*self.marks.get(path, [])[-2:], len(data)]
            parts = [data[a:b].decode("utf-8", "replace") for a, b in itertools.pairwise(marks)]
            if _lives(path):
                yield path, parts or [""]

    def busy(self, path: Path) -> bool:
        """Tell whether a process has computed or read since the watch began to doubt."""
        then = self.work.get(path.name, (0.0, 0.0, 0))
        now = work_of(_pid(path))
        computed = (now[1] - then[1]) > BUSY_SHARE * max(now[0] - then[0], 0.001)
        return then[0] > 0 and (computed or now[2] - then[2] > BUSY_BYTES)

    def guilty(self, stuck: dict[Path, str]) -> Path | None:
        """Choose the process to speak of: a stuck one in user code, workers before the main."""
        order = sorted(stuck, key=lambda path: path.stat().st_ctime, reverse=True)
        in_user_code = [p for p in order if any(f["user"] for f in frames_in(stuck[p]))]
        return next(iter(in_user_code or order), None)


def _pid(path: Path) -> str:
    return path.stem.removeprefix("stacks-")


def _lives(path: Path) -> bool:
    return not Path("/proc/self").exists() or Path(f"/proc/{_pid(path)}").exists()


def work_of(pid: str) -> tuple[float, float, int]:
    """Return (now, CPU seconds, bytes read and paged in) of a process; zeros when it is gone."""
    import psutil

    try:
        process = psutil.Process(int(pid))
        times = process.cpu_times()
        read = getattr(process, "io_counters", lambda: None)()
        paged = _major_faults(pid) * PAGE
    except (psutil.Error, ValueError, OSError):
        return 0.0, 0.0, 0
    read_bytes = getattr(read, "read_chars", getattr(read, "read_bytes", 0))
    return time.monotonic(), times.user + times.system, read_bytes + paged


def _major_faults(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[9])
    except (OSError, IndexError, ValueError):
        return 0


def same_stacks(dumps: list[str]) -> bool:
    """Tell whether the last two dumps show the same lines in every thread, or none could be had."""
    return len(dumps) < 2 or dumps[-1].strip() == dumps[-2].strip()  # noqa: PLR2004


def listens(pid: str) -> bool:
    """Tell whether a process still handles our signal; one that does not would die of it."""
    if not LINUX:
        return False
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(caught and int(caught[1], 16) >> (stack_signal() - 1) & 1)


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
    return [frame for frame in chosen if frame["user"] or not is_ours(frame["file"])]


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
