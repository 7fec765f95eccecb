"""Which object is which array, what made it, and which fields of the finished sample it became."""

from __future__ import annotations

import dataclasses
import math
import types
import weakref
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from dlcheck.observation import State, Step
from dlcheck.observers.describe import DEEPEST, MOST_ITEMS, SCALARS, class_name

Describe = Callable[[Any], State | None]
MOST_LEAVES = 512
# Deep enough for a batch of samples that are tuples of dicts.
DEPTH = 4
# A container's own parameters lie deeper than the sample that it hands on.
CONTAINER_DEPTH = 2
# A reordered sum or a trip through float32 moves a range by less.
ROUNDING = 1e-6
PLAIN_TYPES: frozenset[Any] = SCALARS | {
    type,
    range,
    slice,
    set,
    types.ModuleType,
    types.FunctionType,
}
SEQUENCES: tuple[type[Any], ...] = (list, tuple, deque)


class Entry:
    """An array that was met: what it is now, and the steps that made it."""

    __slots__ = ("_hold", "checked", "family", "state", "steps")

    def __init__(self, value: Any, state: State, event: int) -> None:
        self._hold: Callable[[], Any]
        try:
            self._hold = weakref.ref(value)
        except TypeError:
            self._hold = lambda: value
        self.state = state
        self.steps: tuple[int, ...] = ()
        self.checked = event
        self.family = _family(value)

    def holds(self, value: Any) -> bool:
        """Tell whether this is still that object: an id alone is given out again."""
        return self._hold() is value


def _family(value: Any) -> int:
    """Identify the memory: a view and its base are of one family."""
    name = "_base" if type(value).__name__ == "Tensor" else "base"
    for _ in range(DEEPEST):
        if not hasattr(type(value), name) or not hasattr(type(value), "shape"):
            break
        base = getattr(value, name, None)
        if base is None or not hasattr(type(base), "shape"):
            break
        value = base
    return id(value)


class Read(NamedTuple):
    """An array as it was when a statement began, or as a call inside it returned it.

    `turn` counts such calls, 0 for none; `by` names the function.
    """

    path: str
    entry: Entry
    state: State
    steps: tuple[int, ...]
    turn: int = 0
    by: str = ""

    @property
    def root(self) -> str:
        return self.path.partition(".")[0]

    @property
    def tail(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def member(self) -> bool:
        """Whether it lies in a dict, list or tuple."""
        return "." in self.path


class Arrays:
    """All arrays met in one run, by object; memory is held by nobody on their account."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._entries: dict[int, Entry] = {}
        self._never: set[Any] = set(PLAIN_TYPES)
        self.event = 0
        self.fresh: set[int] = set()

    def scan(self, pairs: Iterable[tuple[str, Any]], depth: int = DEPTH) -> dict[str, Entry]:
        """Find the arrays among values and inside their dicts, lists and tuples."""
        self.event += 1
        self.fresh = set()
        found: dict[str, Entry] = {}
        for path, value in pairs:
            self._visit(path, value, depth, found)
        return found

    def _visit(self, path: str, value: Any, depth: int, found: dict[str, Entry]) -> None:
        kind = type(value)
        if kind in self._never or len(found) >= MOST_LEAVES:
            return
        items = own_items(value, kind)
        if items is not None:
            for key, item in items if depth else ():
                self._visit(f"{path}.{key}", item, depth - 1, found)
            return
        entry = self.entry(value)
        if entry is not None:
            found[path] = entry

    def known(self, value: Any) -> Entry | None:
        entry = self._entries.get(id(value))
        return entry if entry is not None and entry.holds(value) else None

    def entry(self, value: Any) -> Entry | None:
        """Return the entry of an array, a fresh one if it was not met before."""
        entry = self.known(value)
        if entry is None:
            state = self.state(value)
            if state is None:
                return None
            entry = self._entries[id(value)] = Entry(value, state, self.event)
            self.fresh.add(id(entry))
        return entry

    def state(self, value: Any) -> State | None:
        kind = type(value)
        try:
            state = self._describe(value)
        except Exception:  # noqa: BLE001 - an array that cannot be described is none
            return None
        # A tuple that is no array may yet hold some.
        sized = hasattr(kind, "shape") or hasattr(kind, "size")
        if state is None and not sized and own_items(value, kind) is None:
            self._never.add(kind)
        return state

    def again(self, entry: Entry) -> State | None:
        """Describe an array again that may have changed in place; once per event."""
        if entry.checked == self.event:
            return None
        entry.checked = self.event
        value = entry._hold()  # noqa: SLF001
        return None if value is None else self.state(value)


def own_items(value: Any, kind: type[Any]) -> list[tuple[str, Any]] | None:
    """Read Python's own containers past whatever a subclass makes of reading; None for others."""
    if issubclass(kind, dict):
        read = OrderedDict.items if issubclass(kind, OrderedDict) else dict.items
        return [(_key(k), v) for k, v in list(read(value))[:MOST_LEAVES]]
    if UserDict in kind.__mro__:
        data = own_attributes(value).get("data")
        return None if data is None or data is value else own_items(data, type(data))
    base = next((base for base in SEQUENCES if issubclass(kind, base)), None)
    if base is None:
        return None
    names = kind.__dict__.get("_fields") or range(MOST_ITEMS)
    return [(str(k), v) for k, v in zip(names, base.__iter__(value), strict=False)]


def _key(key: Any) -> str:
    return str(key) if type(key) in SCALARS else class_name(type(key))


def own_attributes(value: Any) -> dict[str, Any]:
    """Read an object's own attributes past its class's __getattribute__."""
    try:
        inside = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return inside if type(inside) is dict else {}


def differs(before: State, after: State) -> bool:
    """Tell whether anything worth a step changed."""
    same = (
        before.type == after.type
        and before.dtype == after.dtype
        and before.shape == after.shape
        and before.layout == after.layout
        and _signs(before) == _signs(after)
        and bool(before.nonfinite) == bool(after.nonfinite)
    )
    return not (
        same and all(_close(before, after, name) for name in ("low", "high", "mean", "std"))
    )


def _signs(state: State) -> tuple[bool, ...]:
    signs = tuple(stride < 0 for stride in state.strides)
    return signs if any(signs) else ()


def _close(before: State, after: State, name: str) -> bool:
    a, b = getattr(before, name), getattr(after, name)
    if a is None or b is None:
        return a is b
    span = max(abs(x) for x in (before.low or 0, before.high or 0, after.low or 0, after.high or 0))
    return math.isclose(a, b, rel_tol=ROUNDING, abs_tol=ROUNDING * span)


def choose(path: str, reads: Sequence[Read], keys: frozenset[str]) -> Read | None:
    """Pick the array that most likely became `path`: of its name, else the last, the largest."""
    if not reads:
        return None
    tail = path.rpartition(".")[2]

    def likeness(read: Read) -> tuple[bool, bool, int, int, int]:
        size = math.prod(read.state.shape or ())
        same = read.tail == tail != "return"
        named = sum(part in keys for part in read.path.split(".")[1:])
        return read.path == path and not read.turn, same, named, read.turn, size

    return max(reads, key=likeness)


def sources(
    path: str, before: Read | None, reads: Sequence[Read], keys: frozenset[str]
) -> tuple[int, ...]:
    """List the steps behind what was read; of a dict's members only those that are meant."""
    if before is None:
        return ()
    kept = [before, *(read for read in reads if not read.member)]
    if before.member and before.path != path:
        meant = before.tail in keys or before.tail == path.rpartition(".")[2]
        kept += [r for r in reads if r.root == before.root and (r.tail == before.tail or not meant)]
    return tuple(sorted({number for read in kept for number in read.steps}))


def leaves(value: Any, names: Sequence[str] = ()) -> list[tuple[str, Any]]:
    """List what a sample holds, by the paths that `describe` gives it."""
    out: list[tuple[str, Any]] = []
    _leaves(value, "", names, (), out)
    return out


def _leaves(
    value: Any, path: str, names: Sequence[str], above: tuple[int, ...], out: list[tuple[str, Any]]
) -> None:
    kind = type(value)
    if kind in SCALARS or len(out) >= MOST_LEAVES or len(above) > DEEPEST or id(value) in above:
        return
    pairs = own_items(value, kind)
    if pairs is not None and not path and len(names) == len(pairs) and issubclass(kind, SEQUENCES):
        pairs = [(name, item) for name, (_, item) in zip(names, pairs, strict=True)]
    if pairs is None and hasattr(kind, "__dataclass_fields__") and not hasattr(kind, "shape"):
        inner = own_attributes(value)
        pairs = [(name, inner[name]) for name in kind.__dataclass_fields__ if name in inner]
    if pairs is None:
        out.append((path, value))
        return
    for key, item in pairs:
        _leaves(item, f"{path}.{key}" if path else key, (), (*above, id(value)), out)


def with_fields(steps: Sequence[Step], made: dict[str, tuple[int, ...]]) -> tuple[Step, ...]:
    """Fill Step.fields: walk back from what made each finished field."""
    fields: list[list[str]] = [[] for _ in steps]
    for path, starts in made.items():
        seen: set[int] = set()
        queue = list(starts)
        while queue:
            number = queue.pop()
            if number not in seen:
                seen.add(number)
                fields[number].append(path)
                queue.extend(steps[number].sources)
    return tuple(
        dataclasses.replace(step, fields=tuple(found))
        for step, found in zip(steps, fields, strict=True)
    )


def fewer(steps: Sequence[Step], most: int) -> tuple[Step, ...]:
    """Keep the last steps, those that lead to a finished field first, and number them anew."""
    wanted = sorted(range(len(steps)), key=lambda n: (bool(steps[n].fields), n))[-most:]
    place = {number: index for index, number in enumerate(sorted(wanted))}
    return tuple(
        dataclasses.replace(
            steps[number], sources=tuple(place[s] for s in steps[number].sources if s in place)
        )
        for number in place
    )
