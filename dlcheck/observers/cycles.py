"""What only the collector frees: the cycles in its garbage, what they pin, and who closes them."""

from __future__ import annotations

import collections
import contextlib
import gc
import sys
import tracemalloc
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dlcheck.observers.allocations import user_line
from dlcheck.observers.roots import OPAQUE, referents, vars_of
from dlcheck.observers.sizes import Sizes
from dlcheck.observers.storing import assigned
from dlcheck.run.failures import is_user

MOST_GARBAGE = 200_000
MOST_CYCLES = 2_000
MOST_CHAIN = 8
PLUMBING = (dict, list, tuple, set, types.CellType)


@dataclass
class Pinned:
    """Figures of one kind of cycle: as Sizes counts them."""

    chain: tuple[str, ...] = ()
    type: str = ""
    attribute: str = ""
    file: str = ""
    line: int = 0
    function: str = ""
    cycles: int = 0
    objects: int = 0
    bytes: int = 0
    used: int = 0
    whole: int = 0
    shared: int = 0
    graphs: int = 0
    handles: int = 0
    examples: list[int] = field(default_factory=list)


def pinned(garbage: list[Any]) -> list[Pinned]:
    """Group the cycles of what the collector found by their kind, most bytes first."""
    known = {id(one): one for one in garbage[:MOST_GARBAGE]}
    sizes, seen = Sizes(), set[int]()
    kinds: dict[tuple[str, ...], Pinned] = {}
    cycles = components(known)
    cycles.sort(key=lambda ids: not any(_mine(known[one]) for one in ids))
    for ids in cycles[:MOST_CYCLES]:
        chain, around = _around(ids, known)
        kind = kinds.get(chain)
        if kind is None:
            kind = kinds[chain] = Pinned(chain)
            _accuse(kind, around)
        kind.cycles += 1
        _weigh(ids, known, kind, sizes, seen)
    return sorted(kinds.values(), key=lambda kind: -kind.bytes)


def components(known: dict[int, Any]) -> list[list[int]]:
    """Find the strongly connected parts with a cycle."""
    search = Search(known)
    for start in known:
        if start not in search.order:
            search.run(start)
    return search.found


class Search:
    """Tarjan's search without recursion: garbage may be a long chain."""

    def __init__(self, known: dict[int, Any]) -> None:
        self.edges = {
            one: [id(r) for r in _referents(value) if id(r) in known]
            for one, value in known.items()
        }
        self.order: dict[int, int] = {}
        self.low: dict[int, int] = {}
        self.stack: list[int] = []
        self.waiting: set[int] = set()
        self.work: list[tuple[int, Iterator[int]]] = []
        self.found: list[list[int]] = []

    def run(self, start: int) -> None:
        self._open(start)
        while self.work:
            node, following = self.work[-1]
            after = next((one for one in following if not self._met(node, one)), None)
            if after is None:
                self._close(node)
            else:
                self._open(after)

    def _open(self, node: int) -> None:
        self.order[node] = self.low[node] = len(self.order)
        self.stack.append(node)
        self.waiting.add(node)
        self.work.append((node, iter(self.edges[node])))

    def _met(self, node: int, after: int) -> bool:
        if after in self.waiting:
            self.low[node] = min(self.low[node], self.order[after])
        return after in self.order

    def _close(self, node: int) -> None:
        self.work.pop()
        if self.work:
            outer = self.work[-1][0]
            self.low[outer] = min(self.low[outer], self.low[node])
        if self.low[node] != self.order[node]:
            return
        part = [self.stack.pop()]
        while part[-1] != node:
            part.append(self.stack.pop())
        self.waiting.difference_update(part)
        if len(part) > 1 or node in self.edges[node]:
            self.found.append(part)


def _referents(value: Any) -> list[Any]:
    return gc.get_referents(value)


def _mine(value: Any) -> bool:
    """Tell what is the user's own: an object of their class, a frame or function of their file."""
    code = getattr(value, "f_code", None) or getattr(value, "__code__", None)
    if isinstance(code, types.CodeType):
        return is_user(code.co_filename)
    file = getattr(sys.modules.get(type(value).__module__), "__file__", None)
    return isinstance(file, str) and is_user(file)


def _around(ids: list[int], known: dict[int, Any]) -> tuple[tuple[str, ...], list[Any]]:
    """Walk the shortest way round a cycle, from something of the user's where there is any."""
    inner = set(ids)
    start = next((one for one in ids if _mine(known[one])), ids[0])
    before: dict[int, int] = {}
    queue = collections.deque([start])
    end = None
    while queue and end is None:
        one = queue.popleft()
        for value in _referents(known[one]):
            after = id(value)
            if after == start:
                end = one
                break
            if after in inner and after not in before:
                before[after] = one
                queue.append(after)
    way = []
    one = end if end is not None else start
    while one != start:
        way.append(one)
        one = before[one]
    around = [known[start], *(known[one] for one in reversed(way))]
    shown = [_shown(value) for value in around if type(value) not in PLUMBING]
    return tuple(shown[:MOST_CHAIN]) or tuple(type(v).__name__ for v in around[:1]), around


def _shown(value: Any) -> str:
    if isinstance(value, types.FrameType):
        return f"frame of {value.f_code.co_name}"
    if isinstance(value, types.FunctionType):
        return f"function {value.__qualname__}".replace("<locals>.", "")
    if isinstance(value, types.MethodType):
        return f"method {value.__qualname__}"
    return type(value).__qualname__


def _accuse(kind: Pinned, around: list[Any]) -> None:
    """Find the name by which the user's code closes the cycle, and its line."""
    steps = _named_steps(around)
    kind.type = next((_shown(v) for v in around if _mine(v) and type(v) not in PLUMBING), "")
    kind.type = kind.type or kind.chain[0]
    for holder, name in sorted(steps, key=lambda s: not isinstance(s[0], types.FrameType)):
        file, first, last, function = _source_of(holder)
        lines = assigned(file, name, first, last) if file else []
        if isinstance(holder, types.FrameType):
            kind.attribute, kind.function = name, holder.f_code.co_name
            kind.file, kind.line = file, lines[-1][0] if lines else holder.f_lineno
            return
        if lines:
            upward = [line for line, given_self in lines if given_self]
            if not kind.line or upward:
                kind.attribute, kind.function = f"self.{name}", function
                kind.file, kind.line = file, (upward or [lines[0][0]])[0]
    if not kind.line:
        _by_allocation(kind, around)


def _named_steps(around: list[Any]) -> list[tuple[Any, str]]:
    """List (object of the user's, name by which it holds what follows)."""
    found = []
    for place, value in enumerate(around):
        if not _mine(value) or isinstance(value, types.FunctionType):
            continue
        following = [around[(place + n) % len(around)] for n in (1, 2)]
        names = value.f_locals if isinstance(value, types.FrameType) else vars_of(value)
        for name, held in list(names.items()):
            direct = following[0] if following[0] is not getattr(value, "__dict__", None) else None
            if held is direct or held is following[1]:
                found.append((value, str(name)))
                break
    return found


def _source_of(holder: Any) -> tuple[str, int, int, str]:
    """Return (file, first line, last line, name) of a frame's function, or of an object's class."""
    if isinstance(holder, types.FrameType):
        code = holder.f_code
        lines = [line for _, _, line in code.co_lines() if line]
        return code.co_filename, code.co_firstlineno, max(lines, default=0), code.co_name
    kind = type(holder)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return file, 0, 1 << 30, kind.__qualname__


def _by_allocation(kind: Pinned, around: list[Any]) -> None:
    """Take the line that made one of the objects, or where a function of the cycle stands."""
    for value in around:
        with contextlib.suppress(Exception):
            trace = tracemalloc.get_object_traceback(value)
            line = user_line(trace) if trace is not None else None
            if line is not None:
                kind.file, kind.line = line
                return
    for value in around:
        if isinstance(value, types.FunctionType) and is_user(value.__code__.co_filename):
            kind.file, kind.line = value.__code__.co_filename, value.__code__.co_firstlineno
            return


def _weigh(
    ids: list[int], known: dict[int, Any], kind: Pinned, sizes: Sizes, seen: set[int]
) -> None:
    """Count what a cycle holds: garbage itself, or leaves that nothing tracks."""
    queue = [known[one] for one in ids]
    while queue:
        value = queue.pop()
        if isinstance(value, OPAQUE) or id(value) in seen:
            continue
        if sizes.is_leaf(value):
            if id(value) in known or not gc.is_tracked(value):
                sizes.add(value, kind)
                queue += sizes.inside(value)
            continue
        if id(value) not in known and gc.is_tracked(value):
            continue
        seen.add(id(value))
        kind.objects += 1
        kind.bytes += sizes.shallow(value)
        queue += referents(value) if not isinstance(value, types.FunctionType) else []
        queue += list(value.__closure__ or ()) if isinstance(value, types.FunctionType) else []
