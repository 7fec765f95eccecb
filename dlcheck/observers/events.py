"""Watch the frames of one thread: entered, each line about to run, left.

Two ways with the same answers: sys.monitoring where a tool id is free (Python 3.12 and later),
else sys.settrace. Both leave a tracer that was there as it was.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Protocol

RETURN, YIELD, UNWIND = "return", "yield", "unwind"
COROUTINES = 0x20 | 0x80 | 0x200
# Ids that CPython's documentation leaves to anyone go first: 0 to 2 belong to debuggers,
# coverage and profilers, 5 to optimisers.
TOOL_IDS = (4, 3, 5, 2)


class Sink(Protocol):
    """What is told of the frames that it wants."""

    def wants(self, code: CodeType, frame: FrameType) -> bool: ...

    def enter(self, frame: FrameType, *, fresh: bool) -> None:
        """Tell that a frame begins or, not fresh, goes on after a yield."""

    def line(self, frame: FrameType, number: int) -> None:
        """Tell that this line runs next."""

    def leave(self, frame: FrameType, value: Any, how: str) -> None:
        """Tell that the frame returned, yielded or was unwound by an exception."""


class Watch(Protocol):
    def start(self) -> None: ...

    def stop(self) -> str:
        """End, and say in a note what was lost; empty when nothing was."""

    def quiet(self, frame: FrameType) -> None:
        """Tell of no more lines of this frame's code."""


def watch(sink: Sink) -> Watch:
    """Choose the way that this interpreter has."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is not None:
        tool = next((i for i in TOOL_IDS if monitoring.get_tool(i) is None), None)
        if tool is not None:
            return Monitoring(sink, monitoring, tool)
    return SetTrace(sink)


class Wanted:
    """Which code objects are wanted; by identity, for equal code may stand in two places."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._known: dict[int, tuple[CodeType, bool]] = {}

    def get(self, frame: FrameType) -> bool:
        code = frame.f_code
        known = self._known.get(id(code))
        if known is None:
            known = self._known[id(code)] = (code, self._sink.wants(code, frame))
        return known[1]


class Monitoring:
    """sys.monitoring. Nothing is DISABLEd: to undo that would disturb other tools."""

    def __init__(self, sink: Sink, monitoring: Any, tool: int) -> None:
        self._sink = sink
        self._wanted = Wanted(sink)
        self._monitoring = monitoring
        self._tool = tool
        self._codes: dict[int, CodeType] = {}
        self._thread = threading.get_ident()
        events = monitoring.events
        self._everywhere = events.PY_START | events.PY_RESUME | events.PY_THROW | events.PY_UNWIND
        self._returns = events.PY_RETURN | events.PY_YIELD
        self._local = self._returns | events.LINE

    def start(self) -> None:
        events = self._monitoring.events
        self._monitoring.use_tool_id(self._tool, "dlcheck")
        table: dict[int, Callable[..., Any]] = {
            events.PY_START: self._started,
            events.PY_RESUME: self._resumed,
            events.PY_THROW: self._thrown,
            events.PY_UNWIND: self._unwound,
            events.PY_RETURN: self._returned,
            events.PY_YIELD: self._yielded,
            events.LINE: self._lined,
        }
        for event, callback in table.items():
            self._monitoring.register_callback(self._tool, event, callback)
        self._events = tuple(table)
        self._monitoring.set_events(self._tool, self._everywhere)

    def stop(self) -> str:
        self._monitoring.set_events(self._tool, 0)
        for code in self._codes.values():
            self._monitoring.set_local_events(self._tool, code, 0)
        for event in self._events:
            self._monitoring.register_callback(self._tool, event, None)
        self._monitoring.free_tool_id(self._tool)
        return ""

    def quiet(self, frame: FrameType) -> None:
        code = frame.f_code
        if self._monitoring.get_local_events(self._tool, code) != self._returns:
            self._monitoring.set_local_events(self._tool, code, self._returns)

    def _mine(self, frame: FrameType) -> bool:
        if threading.get_ident() != self._thread or not self._wanted.get(frame):
            return False
        code = frame.f_code
        if id(code) not in self._codes:
            self._codes[id(code)] = code
            self._monitoring.set_local_events(self._tool, code, self._local)
        return True

    def _started(self, _code: CodeType, _offset: int) -> None:
        frame = sys._getframe(1)  # noqa: SLF001 - callbacks are handed the code, not the frame
        if self._mine(frame):
            self._sink.enter(frame, fresh=True)

    def _resumed(self, _code: CodeType, _offset: int) -> None:
        frame = sys._getframe(1)  # noqa: SLF001
        if self._mine(frame):
            self._sink.enter(frame, fresh=False)

    def _thrown(self, _code: CodeType, _offset: int, _error: BaseException) -> None:
        frame = sys._getframe(1)  # noqa: SLF001
        if self._mine(frame):
            self._sink.enter(frame, fresh=False)

    def _unwound(self, _code: CodeType, _offset: int, _error: BaseException) -> None:
        frame = sys._getframe(1)  # noqa: SLF001
        if id(frame.f_code) in self._codes and self._mine(frame):
            self._sink.leave(frame, None, UNWIND)

    def _returned(self, _code: CodeType, _offset: int, value: Any) -> None:
        if threading.get_ident() == self._thread:
            self._sink.leave(sys._getframe(1), value, RETURN)  # noqa: SLF001

    def _yielded(self, _code: CodeType, _offset: int, value: Any) -> None:
        if threading.get_ident() == self._thread:
            self._sink.leave(sys._getframe(1), value, YIELD)  # noqa: SLF001

    def _lined(self, _code: CodeType, number: int) -> None:
        if threading.get_ident() == self._thread:
            self._sink.line(sys._getframe(1), number)  # noqa: SLF001


RETURNING = {dis.opmap.get("RETURN_VALUE"), dis.opmap.get("RETURN_CONST")}
RESUME = dis.opmap.get("RESUME")


def _fresh(frame: FrameType) -> bool:
    """Tell a call from the resumption of a generator; sys.settrace reports both alike."""
    if not frame.f_code.co_flags & COROUTINES or frame.f_lasti < 0:
        return True
    code = frame.f_code.co_code
    return code[frame.f_lasti] == RESUME and code[frame.f_lasti + 1] == 0


class SetTrace:
    """sys.settrace of the calling thread."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._wanted = Wanted(sink)
        self._before: Any = None
        self._quiet: dict[int, CodeType] = {}
        self._touched: dict[int, tuple[FrameType, Any]] = {}
        self._raised: dict[int, bool] = {}

    def start(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._call)

    def stop(self) -> str:
        now = sys.gettrace()
        # None: the interpreter drops a tracer that meets the recursion limit. What the user's
        # code installed in our place is its own business.
        if now is None or now == self._call:
            sys.settrace(self._before)
        # A suspended generator would go on to call us: sys.settrace keeps its local function.
        for frame, before in self._touched.values():
            frame.f_trace = before
            frame.f_trace_lines = True
        self._touched.clear()
        return "" if now == self._call else "another tracer took over: not all steps were seen"

    def quiet(self, frame: FrameType) -> None:
        self._quiet[id(frame.f_code)] = frame.f_code
        frame.f_trace_lines = False

    def _call(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event != "call" or not self._wanted.get(frame):
            return None
        self._touched.setdefault(id(frame), (frame, frame.f_trace))
        self._raised[id(frame)] = False
        if id(frame.f_code) in self._quiet:
            frame.f_trace_lines = False
        self._sink.enter(frame, fresh=_fresh(frame))
        return self._local

    def _local(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self._raised[id(frame)] = False
            self._sink.line(frame, frame.f_lineno)
        elif event == "exception":
            self._raised[id(frame)] = True
        elif event == "return":
            how = self._how(frame)
            self._sink.leave(frame, arg, how)
            if how != YIELD:
                self._touched.pop(id(frame), None)
                self._raised.pop(id(frame), None)
        return self._local

    def _how(self, frame: FrameType) -> str:
        # An exception that was caught on the same line leaves its mark, hence the opcode first.
        # Where f_lasti stands at a yield differs between versions: no opcode is asked for there.
        at = frame.f_code.co_code[frame.f_lasti] if frame.f_lasti >= 0 else -1
        if at in RETURNING:
            return RETURN
        resumable = frame.f_code.co_flags & COROUTINES
        return YIELD if resumable and not self._raised[id(frame)] else UNWIND
