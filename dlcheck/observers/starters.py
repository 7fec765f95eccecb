"""Which line of the user's code opens, starts, makes or keeps what is left over.

Between one line of the user's and the next, in every thread, the process is looked at: its
handles, threads, children and shared memory, and how much chosen attributes hold. What is new was
made by the line before; what is gone again is forgotten.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import linecache
import multiprocessing.process
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from dlcheck.observers.roots import thread_name
from dlcheck.run.failures import is_user

SHM = "/dev/shm"  # noqa: S108 - where shared memory lies, not a file of ours
MOST_CHAIN = 12
MOST_KEPT = 4_096


@dataclass(frozen=True)
class Place:
    """A line of the user's, and the lines that led to it, outermost first."""

    file: str
    line: int
    function: str
    chain: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return linecache.getline(self.file, self.line).strip()[:300]


@dataclass
class Left:
    """What a line left behind: the names of things still there, or a count."""

    place: Place
    names: list[str] = field(default_factory=list)
    count: int = 0


class Lines:
    """Follows the lines of the user's code, and what changes from one to the next.

    `sets` are named readers of what exists: key -> name. `meters` are named readers of amounts; a
    line after which one rose, or changed, kept something.
    """

    def __init__(
        self,
        sets: dict[str, Callable[[], dict[Any, str]]],
        meters: dict[str, Callable[[], Any]],
        deadline: float,
    ) -> None:
        self.sets = sets
        self.meters = meters
        self.deadline = deadline
        self.known = {name: reader() for name, reader in sets.items()}
        self.levels = {name: reader() for name, reader in meters.items()}
        self.found: dict[str, dict[Any, tuple[Place, str]]] = collections.defaultdict(dict)
        self.kept: dict[str, collections.Counter[Place]] = collections.defaultdict(
            collections.Counter
        )
        self.lines: dict[tuple[str, int], int] = {}
        self.local = threading.local()
        self.lock = threading.Lock()
        self.stopped = False
        self.started: weakref.WeakKeyDictionary[threading.Thread, Place] = (
            weakref.WeakKeyDictionary()
        )
        if "threads" in sets:
            _follow_threads(self.started)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Trace this thread, and those that start meanwhile."""
        before = sys.gettrace()
        before_threads: Any = threading.gettrace() if HAS_GETTRACE else None
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(before_threads)
            self._look(sys._getframe())  # noqa: SLF001 - the last line of all

    def resume(self) -> None:
        """Take what exists now as known: it came while nobody looked."""
        self.local.last = None
        self.known = {name: reader() for name, reader in self.sets.items()}
        self.levels = {name: meter() for name, meter in self.meters.items()}
        for name, known in self.known.items():
            self.found[name] = {k: v for k, v in self.found[name].items() if k in known}

    def _call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        if self.stopped or not is_user(frame.f_code.co_filename):
            return None
        if time.monotonic() > self.deadline:
            self.stopped = True
            return None
        self._look(frame)
        self._at(frame)
        return self._line

    def _line(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if self.stopped:
            return None
        self._look(frame)
        if event == "return":
            # What happens next, until the caller's next line, happens on the caller's.
            caller = frame.f_back
            while caller is not None and not is_user(caller.f_code.co_filename):
                caller = caller.f_back
            self.local.last = None if caller is None else (caller.f_code, caller.f_lineno, caller)
        elif event == "line":
            self._at(frame)
        return self._line

    def _at(self, frame: FrameType) -> None:
        self.local.last = (frame.f_code, frame.f_lineno, frame)
        place = (frame.f_code.co_filename, frame.f_lineno)
        self.lines[place] = self.lines.get(place, 0) + 1

    def _look(self, frame: FrameType) -> None:
        """Give what changed to the line before."""
        last = getattr(self.local, "last", None)
        if not self.lock.acquire(blocking=False):
            return
        try:
            for name, reader in self.sets.items():
                now = reader()
                known = self.known[name]
                if now.keys() != known.keys():
                    self._changed(name, known, now, last, frame)
            for name, meter in self.meters.items():
                level = meter()
                if level != self.levels[name]:
                    if last is not None and _rose(self.levels[name], level):
                        self.kept[name][self._place(last, frame)] += 1
                    self.levels[name] = level
        finally:
            self.lock.release()

    def _changed(
        self, name: str, known: dict[Any, str], now: dict[Any, str], last: Any, frame: FrameType
    ) -> None:
        found = self.found[name]
        for key in known.keys() - now.keys():
            found.pop(key, None)
        for key in now.keys() - known.keys():
            if last is not None and len(found) < MOST_KEPT:
                found[key] = (self._place(last, frame), now[key])
        self.known[name] = now

    @staticmethod
    def _place(last: tuple[CodeType, int, FrameType], _frame: FrameType) -> Place:
        code, line, inner = last
        return Place(code.co_filename, line, function_of(inner), tuple(chain_of(inner)))

    def left(self, name: str) -> list[Left]:
        """List what is still there by the line that made it, most first."""
        lefts: dict[tuple[str, int], Left] = {}
        found = dict(self.found.get(name, {}))
        if name == "threads":
            # A thread that is new may be the one that looked first: its start is known otherwise.
            alive = {str(t.native_id): t for t in self.started if t.is_alive()}
            found |= {tid: (self.started[t], thread_name(t)) for tid, t in alive.items()}
        for place, shown in found.values():
            one = lefts.setdefault((place.file, place.line), Left(place))
            one.count += 1
            one.names.append(shown)
        return sorted(lefts.values(), key=lambda one: -one.count)

    def keeper(self, name: str) -> Place | None:
        """Return the line after which a meter rose most often."""
        kept = self.kept.get(name)
        if not kept:
            return None
        counts: collections.Counter[tuple[str, int]] = collections.Counter()
        for place, count in kept.items():
            counts[(place.file, place.line)] += count
        top = counts.most_common(1)[0][0]
        return next(place for place in kept if (place.file, place.line) == top)


HAS_GETTRACE = hasattr(threading, "gettrace")


def _rose(before: Any, after: Any) -> bool:
    if isinstance(before, int) and isinstance(after, int) and before < 1 << 40 > after:
        return after > before
    return after is not None


def _follow_threads(started: Any) -> None:
    """Remember the user's line that starts each thread, outside of the thread's own methods."""
    start = threading.Thread.start

    @functools.wraps(start)
    def followed(thread: threading.Thread) -> None:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - only frames tell the line
        while frame is not None and (not is_user(frame.f_code.co_filename) or _of(frame, thread)):
            frame = frame.f_back
        if frame is not None:
            chain = tuple(chain_of(frame))
            code = frame.f_code
            started[thread] = Place(code.co_filename, frame.f_lineno, function_of(frame), chain)
        start(thread)

    setattr(threading.Thread, "start", followed)  # noqa: B010 - a method is no variable to mypy


def _of(frame: FrameType, thread: threading.Thread) -> bool:
    names = frame.f_code.co_varnames
    return bool(names and frame.f_code.co_argcount) and frame.f_locals.get(names[0]) is thread


def function_of(frame: FrameType) -> str:
    """Name a frame's function as the user knows it: `Class.method`."""
    name = frame.f_code.co_name
    names = frame.f_code.co_varnames
    if names and frame.f_code.co_argcount and names[0] in ("self", "cls"):
        with contextlib.suppress(Exception):
            owner = frame.f_locals[names[0]]
            kind = owner if isinstance(owner, type) else type(owner)
            return f"{kind.__name__}.{name}"
    return str(getattr(frame.f_code, "co_qualname", name)).replace("<locals>.", "")


def chain_of(frame: FrameType | None) -> list[str]:
    """List the user's lines on the stack, outermost first: `file:line function`."""
    found: list[str] = []
    while frame is not None and len(found) < MOST_CHAIN:
        if is_user(frame.f_code.co_filename):
            file = Path(frame.f_code.co_filename).name
            found.append(f"{file}:{frame.f_lineno} {function_of(frame)}")
        frame = frame.f_back
    return found[::-1]


class Handles:
    """Reads what is open: number -> what it is. The one that lists them is closed by then."""

    def __init__(self) -> None:
        self.known: dict[Any, str] = {}

    def __call__(self) -> dict[Any, str]:
        now: dict[Any, str] = {}
        for number in _listed("/proc/self/fd"):
            known = self.known.get(number)
            if known is not None:
                now[number] = known
                continue
            with contextlib.suppress(OSError):
                now[number] = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 - quick
        self.known = now
        return now


def threads() -> dict[Any, str]:
    """Read the threads of this process, those of libraries included."""
    names = {str(t.native_id): thread_name(t) for t in threading.enumerate()}
    return {tid: names.get(tid, "") for tid in _listed("/proc/self/task")}


def children() -> dict[Any, str]:
    """Read the processes that this one started and that are still there."""
    found: dict[Any, str] = {}
    for task in _listed("/proc/self/task"):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/self/task/{task}/children").read_text(encoding="ascii")
            found.update(dict.fromkeys(text.split(), ""))
    # active_children() would wait for those that have ended, which the user does not.
    started = getattr(multiprocessing.process, "_children", ())
    found |= {str(one.pid): one.name for one in list(started) if str(one.pid) in found}
    for pid in [pid for pid, name in found.items() if not name]:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found[pid] = b" ".join(words[:3]).decode("utf-8", "replace").strip()[:120]
    return found


def segments() -> dict[Any, str]:
    """Read the names of all shared memory; of others' among it none is new for long."""
    return {name: name for name in _listed(SHM) if not name.startswith(("torch_", "sem."))}


def _listed(folder: str) -> Iterable[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - called between all lines
    except OSError:
        return ()
