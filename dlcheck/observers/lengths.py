"""How many items the attributes of a pipeline hold, without looking at the items.

A walk over the items themselves, in a worker, would cause the copy-on-write that one looks for.
"""

from __future__ import annotations

import contextlib
import sys
from array import array
from dataclasses import dataclass, field
from typing import Any

from dlcheck.observers.attributes import CACHE, CONTAINERS
from dlcheck.observers.roots import Root, inside, roots_of
from dlcheck.observers.sizes import length_of
from dlcheck.run.failures import is_user

DEEPEST = 6
MOST_OBJECTS = 1_500
MOST_ITEMS = 64
MOST_KEPT = 4_000
MOST_WRITTEN = 64
LARGE = 1_000
LITTLE, SETTLED = 32, 2
NESTED = (dict, list, set)
PLAIN = (int, float, str, bytes, bytearray, type(None), type(sys))


@dataclass
class Length:
    """One attribute and its lengths so far, in numbers that take no objects of their own.

    `within` is the key of the container or attribute that leads to it.
    """

    path: str
    type: str
    owner: str
    of: str
    within: str = ""
    bound: int | None = None
    lengths: array[int] = field(default_factory=lambda: array("q"))


class Lengths:
    """Looks at what a target and the user's modules hold; each look adds one length."""

    def __init__(self, target: Any, step: Any = None) -> None:
        self.target = target
        self.step = step
        self.known: dict[str, Length] = {}
        self.looks = 0
        self.seen: set[int] = set()

    def look(self) -> None:
        """Take the length of everything once."""
        self.seen = set()
        for root in roots_of(self.target, self.step):
            foreign = root.full == "loader" and not is_users(type(root.value))
            if root.owner != "thread" and not foreign:
                one = Length(root.name, "", root.owner, "")
                self.visit(root.value, root.full, one, root)
        self.looks += 1
        for known in self.known.values():
            if len(known.lengths) < self.looks:
                known.lengths.append(0)
        self.seen = set()

    def visit(self, value: Any, key: str, one: Length, root: Root, depth: int = 0) -> None:
        """Take an attribute's length, or go on with what an object holds."""
        if isinstance(value, PLAIN) or is_seen(self.seen, value) or depth > DEEPEST:
            return
        one.type = type(value).__name__
        size, one.bound = measured(value)
        if size is not None:
            if depth or root.kind:
                self.keep(key, one, size)
                self.keep_inner(value, key, one)
            if not isinstance(value, CONTAINERS) or size > MOST_ITEMS:
                return
        for name, holder, item in parts(value, one, root, depth):
            within = key if key in self.known else one.within
            inner = Length(name, "", one.owner, holder, within)
            self.visit(item, f"{key}.{name.rpartition('.')[2]}", inner, root, depth + 1)

    def keep_inner(self, value: Any, key: str, one: Length) -> None:
        """Keep what the containers in a small container hold together."""
        if type(value) in NESTED and 0 < len(value) <= MOST_ITEMS:
            items = list(value.values()) if isinstance(value, dict) else list(value)
            inner = [len(item) for item in items if type(item) in NESTED]
            if inner:
                every = Length(f"{one.path}[...]", one.type, one.owner, one.of, key)
                self.keep(f"{key}[]", every, sum(inner))

    def keep(self, key: str, one: Length, size: int) -> None:
        """Add a length to those of the attribute, which may be new."""
        known = self.known.get(key)
        if known is None:
            if len(self.known) >= MOST_KEPT:
                return
            known = self.known[key] = one
            known.lengths.extend([0] * self.looks)
        if len(known.lengths) <= self.looks:
            known.lengths.append(size)

    def table(self) -> dict[str, Any]:
        """Return those that changed, and the large ones, as Held in JSON."""
        told = {key: one for key, one in self.known.items() if self.telling(one)}
        order = sorted(told, key=lambda k: (len(set(told[k].lengths)) == 1, -max(told[k].lengths)))
        return {
            key: {
                "path": one.path, "type": one.type, "owner": one.owner, "of": one.of,
                "lengths": list(one.lengths), "bound": one.bound,
            }
            for key, one in ((key, told[key]) for key in order[:MOST_WRITTEN])
        }  # fmt: skip

    def telling(self, one: Length) -> bool:
        """Tell whether an attribute changed, or is large, and no container around it changed.

        A little that is there from the first epoch on is what code sets up as it begins.
        """
        outer = self.known.get(one.within)
        while outer is not None:
            if changed(outer):
                return False
            outer = self.known.get(outer.within)
        settled = len(one.lengths) > SETTLED and len(set(one.lengths[1:])) == 1
        if settled and max(one.lengths) < LITTLE:
            return False
        return changed(one) or one.lengths[0] >= LARGE


def changed(one: Length) -> bool:
    """Tell whether an attribute had different lengths."""
    return len(set(one.lengths)) > 1


def is_seen(seen: set[int], value: Any) -> bool:
    """Tell whether an object was met in this look, or was one too many; remembers it."""
    if id(value) in seen or len(seen) >= MOST_OBJECTS:
        return True
    seen.add(id(value))
    return False


def parts(value: Any, one: Length, root: Root, depth: int) -> list[tuple[str, str, Any]]:
    """List what an object holds: as the user writes it, the class that holds it, the value."""
    if isinstance(value, CONTAINERS):
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        return [
            (f"{one.path}[{key!r:.40}]", one.of, item)
            for key, item in pairs
            if type(key) in (str, int) and not isinstance(item, (*PLAIN, *CONTAINERS))
        ]
    if isinstance(value, CACHE):
        return []
    found = []
    with contextlib.suppress(Exception):
        for kind, _, item, shown in inside(value):
            base = root.name if root.kind == "global" and depth == 0 else "self"
            if kind == "attribute":
                found.append((f"{base}.{shown}", type(value).__qualname__, item))
            else:
                found.append((shown, one.of, item))
    return found


def measured(value: Any) -> tuple[int | None, int | None]:
    """Return (items, most items) of containers and caches, (elements, None) of arrays."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if type(value) is getattr(numpy, "ndarray", None):
        return int(value.size), None
    if type(value) is getattr(torch, "Tensor", None):
        with contextlib.suppress(Exception):
            return int(value.numel()), None
        return None, None
    return length_of(value)


def is_users(kind: type[Any]) -> bool:
    """Tell a class that the user's own files define."""
    module = type.__getattribute__(kind, "__module__")
    file = getattr(sys.modules.get(module), "__file__", None) if isinstance(module, str) else None
    return isinstance(file, str) and is_user(file)
