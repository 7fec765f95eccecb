"""Which attributes hold how much: a walk from the user's objects down to arrays and storages.

Names are given to what a user can write: attributes, globals, class attributes, default arguments,
variables of closures and of suspended generators, items of small containers. What lies deeper is
counted to the nearest name. No code of the user's runs. For the probe only: in a worker the walk
itself would un-share the pages it looks at.
"""

from __future__ import annotations

import collections
import functools
import gc
import sys
import threading
import time
import types
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any

from dlcheck.observers.roots import (
    Root,
    dict_of,
    inside,
    is_opaque,
    items_of,
    referents,
    thread_name,
    vars_of,
)
from dlcheck.observers.sizes import SCALARS as SCALAR_TYPES
from dlcheck.observers.sizes import Sizes, is_a, length_of

MOST_NAMED_ITEMS = 32
DEEPEST = 10
MOST_OBJECTS = 1_500_000
MOST_OF_ONE = 600_000
MOST_ITEMS = 10_000
FIGURES = (
    "bytes",
    "objects",
    "used",
    "whole",
    "shared",
    "graphs",
    "handles",
    "threads",
    "children",
)
SECONDS = 3.0
SCALARS = frozenset(SCALAR_TYPES)
CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)
CACHE = type(functools.lru_cache(print))


@dataclass
class Node:
    """A name, and what it holds itself; what the names below it hold is theirs.

    `used` and `whole` are the bytes of views and of the memory behind them. `kind` and `holder`
    tell where to find the value again.
    """

    full: str
    name: str
    owner: str
    parent: str = ""
    cls: str = ""
    type: str = ""
    length: int | None = None
    bound: int | None = None
    item: str = ""
    bytes: int = 0
    objects: int = 0
    used: int = 0
    whole: int = 0
    shared: int = 0
    graphs: int = 0
    handles: int = 0
    threads: int = 0
    children: int = 0
    kind: str = ""
    key: Any = None
    holder: Any = None
    trail: tuple[Any, ...] = ()


@dataclass
class Census:
    """All names with what they held at one moment. `cut`: not everything was looked at."""

    nodes: dict[str, Node] = field(default_factory=dict)
    cut: bool = False

    def totals(self, of: str) -> dict[str, int]:
        """Sum a figure over each name and all names below it."""
        found = {full: int(getattr(node, of)) for full, node in self.nodes.items()}
        for full in sorted(found, key=lambda one: -len(self.nodes[one].trail)):
            parent = self.nodes[full].parent
            if parent in found:
                found[parent] += found[full]
        return found


class Walk:
    """One census. Objects reached twice count to the name that comes first."""

    def __init__(self, known: Census | None = None) -> None:
        self.census = Census()
        self.known = known.nodes if known is not None else {}
        self.sizes = Sizes()
        self.seen: set[int] = {id(vars(module)) for module in list(sys.modules.values())}
        frame: types.FrameType | None = sys._getframe()  # noqa: SLF001 - our own stack is no answer
        while frame is not None:
            self.seen.add(id(frame))
            frame = frame.f_back
        self.seen |= {id(self), id(self.census), id(self.census.nodes)}
        self.named: collections.deque[tuple[Any, Node]] = collections.deque()
        self.contents: list[tuple[list[Any], Node]] = []
        self.deadline = time.monotonic() + SECONDS

    def run(self, roots: list[Root]) -> Census:
        """Give names first, then count what lies under each."""
        for root in roots:
            node = Node(root.full, root.name, root.owner)
            node.kind, node.key, node.holder = root.kind, root.key, root.holder
            self._enter(root.value, node)
        self._exhaust()
        # What a thread holds that something else keeps too is that other one's.
        for thread in threading.enumerate():
            if thread is not threading.main_thread():
                self._enter_thread(thread)
        self._exhaust()
        return self.census

    def _exhaust(self) -> None:
        while self.named:
            value, node = self.named.popleft()
            self._name(value, node)
        contents, self.contents = self.contents, []
        for items, node in contents:
            if self._reused(node):
                continue
            if len(items) > MOST_ITEMS:
                self._sampled(items, node)
            else:
                self._count(items, node)

    def _enter_thread(self, thread: threading.Thread) -> None:
        """Enter a thread under a common name for all of its class."""
        kind = type(thread)
        name = thread_name(thread)
        group = self.census.nodes.setdefault(
            f"threads {name}", Node(f"threads {name}", name, "thread", type=kind.__qualname__)
        )
        group.length = (group.length or 0) + 1
        if id(thread) not in self.seen:
            child = Node(f"{group.full} {group.length}", name, "thread", group.full, kind="global")
            child.trail = ((kind, "thread"),)
            self._enter(thread, child)

    def _enter(self, value: Any, node: Node) -> None:
        """Take a name into the census, unless its value has one already."""
        if id(value) in self.seen or is_opaque(value) or node.full in self.census.nodes:
            return
        self.census.nodes[node.full] = node
        node.type = type(value).__qualname__
        node.length, node.bound = length_of(value)
        if self.sizes.is_leaf(value):
            self.sizes.add(value, node)
            self._later(self.sizes.inside(value), node)
            return
        self.seen.add(id(value))
        self.named.append((value, node))

    def _child(self, parent: Node, name: str, edge: str, value: Any, *place: Any) -> None:
        """Enter what lies under a name; a chain of links of the same kind gets one name."""
        kind, holder, key = place
        step = (type(holder), str(key))
        deep = len(parent.trail) >= DEEPEST
        if deep or (kind == "attribute" and step in parent.trail):
            self._later([value], parent)
            return
        owner = parent.owner
        if owner == "dataset" and kind == "attribute" and "transform" in str(key).lower():
            owner = "transform"
        child = Node(parent.full + edge, name, owner, parent.full)
        child.kind, child.holder, child.key = kind, holder, key
        child.trail = (*parent.trail, step)
        child.cls = type(holder).__qualname__ if kind == "attribute" else parent.cls
        if kind in ("cell", "default", "local"):
            child.cls = str(getattr(holder, "__qualname__", "")).replace("<locals>.", "")
        self._enter(value, child)

    def _name(self, value: Any, node: Node) -> None:
        """Name what an object holds, as far as a user could."""
        self.sizes.mark(value, node)
        if is_a(value, CONTAINERS):
            self._name_items(value, node)
            return
        if is_a(value, CACHE):
            self._later(gc.get_referents(value), node)
            return
        for kind, key, inner, shown in inside(value):
            base = node.name if node.kind == "global" else "self"
            name = f"{base}.{shown}" if kind == "attribute" else shown
            self._child(node, name, f".{shown}", inner, kind, value, key)
        if not is_a(value, types.FunctionType | types.MethodType | types.GeneratorType):
            self._later([one for one in referents(value) if not self._own(value, one)], node)

    @staticmethod
    def _own(value: Any, one: Any) -> bool:
        return one is dict_of(value)

    def _name_items(self, value: Any, node: Node) -> None:
        """Name the items of a small container; those of a large one have no names."""
        is_map = is_a(value, dict)
        pairs = list(dict.items(value)) if is_map else list(enumerate(items_of(value)))
        if pairs:
            node.item = type(pairs[-1][1]).__qualname__
        if not is_a(value, set | frozenset) and len(pairs) <= MOST_NAMED_ITEMS:
            for key, item in pairs:
                if is_map and type(key) not in (str, int):
                    self._later([key, item], node)
                    continue
                shown = f"[{key!r:.40}]"
                self._child(node, node.name + shown, shown, item, "item", value, key)
            return
        self._later([item for _, item in pairs], node)
        if is_map:
            self._later([key for key, _ in pairs], node)
        # What a container was extended by, a user's own fields of a dict subclass among it.
        if type(value) not in CONTAINERS:
            self._later(list(vars_of(value).values()), node)

    def _later(self, items: list[Any], node: Node) -> None:
        """Remember what is counted once all names are given."""
        if items:
            self.contents.append((items, node))

    def _count(self, queue: list[Any], node: Node) -> None:
        """Count what lies under a name, to its end or the bound."""
        seen, sizes, most = self.seen, self.sizes, node.objects + MOST_OF_ONE
        while queue:
            one = queue.pop()
            if id(one) in seen:
                continue
            if node.objects > most or (node.objects % 1024 == 0 and self._late()):
                self.census.cut = True
                return
            kind = type(one)
            if kind in SCALARS:
                seen.add(id(one))
                node.objects += 1
                node.bytes += getsizeof(one)
            elif sizes.is_leaf(one):
                sizes.add(one, node)
                queue += sizes.inside(one)
            elif not is_opaque(one):
                seen.add(id(one))
                sizes.mark(one, node)
                queue += referents(one)

    def _reused(self, node: Node) -> bool:
        """Take over the figures of very many items that are as many as before."""
        before = self.known.get(node.full)
        if before is None or before.objects <= MOST_ITEMS or before.length is None:
            return False
        if (before.length, before.type) != (node.length, node.type):
            return False
        for of in FIGURES:
            setattr(node, of, getattr(before, of))
        return True

    def _sampled(self, items: list[Any], node: Node) -> None:
        """Count a few thousand items of very many, and take the others to be like them."""
        every = -(-len(items) // MOST_ITEMS)
        part = Node(node.full, node.name, node.owner)
        self._count(items[::every], part)
        for of in FIGURES:
            setattr(node, of, getattr(node, of) + every * getattr(part, of))

    def _late(self) -> bool:
        return time.monotonic() > self.deadline or len(self.seen) > MOST_OBJECTS
