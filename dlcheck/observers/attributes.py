"""Which attributes hold how much: a walk from the user's objects down to arrays and storages.

Names are given to what a user can write: attributes, globals, class attributes, default arguments,
variables of closures and of suspended generators, items of small containers. What lies deeper is
counted to the nearest name. No code of the user's runs. For the probe only: in a worker the walk
itself would un-share the pages it looks at.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import sys
import threading
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any

from dlcheck.observers.sizes import SCALARS as SCALAR_TYPES
from dlcheck.observers.sizes import Sizes, length_of
from dlcheck.run.failures import is_user

MOST_NAMED_ITEMS = 32
DEEPEST = 10
MOST_OBJECTS = 1_500_000
MOST_OF_ONE = 300_000
MOST_ITEMS = 10_000
FIGURES = ("bytes", "objects", "used", "whole", "shared", "graphs", "handles", "threads", "children")
SECONDS = 3.0
SCALARS = frozenset(SCALAR_TYPES)
OPAQUE = (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType)
OURS, EXAMPLES = "dlcheck.", "dlcheck.examples."
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
    trail: tuple[tuple[type, str], ...] = ()


@dataclass
class Root:
    """Where a walk begins. `name` is how the user writes it, `self` for the dataset and its like."""

    full: str
    value: Any
    owner: str
    name: str = "self"
    kind: str = ""
    key: Any = None
    holder: Any = None


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
        if id(thread) not in self.seen:
            group.length = (group.length or 0) + 1
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
        self._enter(value, child)

    def _name(self, value: Any, node: Node) -> None:
        """Name what an object holds, as far as a user could."""
        self.sizes.mark(value, node)
        if isinstance(value, CONTAINERS):
            self._name_items(value, node)
            return
        if isinstance(value, CACHE):
            self._later(gc.get_referents(value), node)
            return
        for kind, key, inner, shown in inside(value):
            base = node.name if node.kind == "global" else "self"
            name = f"{base}.{shown}" if kind == "attribute" else shown
            self._child(node, name, f".{shown}", inner, kind, value, key)
        if not isinstance(value, types.FunctionType | types.MethodType | types.GeneratorType):
            self._later([one for one in referents(value) if not self._own(value, one)], node)

    @staticmethod
    def _own(value: Any, one: Any) -> bool:
        return isinstance(one, dict) and one is getattr(value, "__dict__", None)

    def _name_items(self, value: Any, node: Node) -> None:
        """Name the items of a small container; those of a large one have no names."""
        is_map = isinstance(value, dict)
        pairs = list(value.items()) if is_map else list(enumerate(value))
        if pairs:
            node.item = type(pairs[-1][1]).__qualname__
        if not isinstance(value, set | frozenset) and len(pairs) <= MOST_NAMED_ITEMS:
            for key, item in pairs:
                if is_map and not isinstance(key, str | int):
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
        before = self.known.get(node.full)
        if before is not None and before.objects > MOST_ITEMS:
            same = before.length is not None and before.length == node.length
            if same and before.type == node.type:
                node.bytes, node.objects = before.bytes, before.objects
                return
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

    def _sampled(self, items: list[Any], node: Node) -> None:
        """Count a few thousand items of very many, and take the others to be like them."""
        every = -(-len(items) // MOST_ITEMS)
        part = Node(node.full, node.name, node.owner)
        self._count(items[::every], part)
        for of in FIGURES:
            setattr(node, of, getattr(node, of) + every * getattr(part, of))

    def _late(self) -> bool:
        return time.monotonic() > self.deadline or len(self.seen) > MOST_OBJECTS


def thread_name(thread: threading.Thread) -> str:
    """Name a thread by its class, or by what it runs."""
    if type(thread) is not threading.Thread:
        return type(thread).__name__
    target = getattr(thread, "_target", None)
    return str(getattr(target, "__qualname__", "") or thread.name.partition("-")[0])


def is_opaque(value: Any) -> bool:
    """Tell modules, classes and code, which hold what others hold too, and objects of our own."""
    if isinstance(value, OPAQUE):
        return True
    module = type(value).__module__
    return isinstance(module, str) and module.startswith(OURS) and not module.startswith(EXAMPLES)


def referents(value: Any) -> list[Any]:
    """List what an object refers to; of functions only what their closures hold."""
    if isinstance(value, types.FunctionType):
        return [*(value.__closure__ or ()), *(value.__defaults__ or ())]
    if isinstance(value, types.MethodType):
        return [value.__self__]
    return gc.get_referents(value)


def vars_of(value: Any) -> dict[str, Any]:
    """Return an object's own attributes, without running a property or `__getattr__`."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # noqa: BLE001 - a __dict__ property may raise anything
        return {}
    return dict(found) if isinstance(found, dict) else {}


def inside(value: Any) -> Iterator[tuple[str, Any, Any, str]]:
    """Yield the named parts of an object: (kind, key, value, as written)."""
    if isinstance(value, types.MethodType):
        yield "self", None, value.__self__, "self"
        value = value.__func__
    if isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        for name, inner in dict(frame.f_locals if frame is not None else {}).items():
            yield "local", name, inner, name
    elif isinstance(value, functools.partial):
        yield "partial", "func", value.func, "func"
        for number, inner in enumerate(value.args):
            yield "partial", number, inner, f"args[{number}]"
        for name, inner in value.keywords.items():
            yield "partial", name, inner, name
    else:
        for name, inner in vars_of(value).items():
            yield "attribute", name, inner, str(name)
        for name, inner in _slots(value):
            yield "attribute", name, inner, name


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any, Any, str]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):
            yield "cell", cell, cell.cell_contents, name
    defaults = function.__defaults__ or ()
    takers = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    for name, inner in [*zip(takers, defaults, strict=False), *_keywords(function)]:
        yield "default", name, inner, name
    for name, inner in dict(vars(function)).items():
        if name != "__wrapped__":
            yield "attribute", name, inner, f"{function.__name__}.{name}"
        elif isinstance(inner, types.FunctionType):
            yield from _of_function(inner)


def _keywords(function: types.FunctionType) -> list[tuple[str, Any]]:
    return list((function.__kwdefaults__ or {}).items())


def _slots(value: Any) -> Iterator[tuple[str, Any]]:
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots or ()):
            member = base.__dict__.get(name)
            if isinstance(member, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):
                    yield name, member.__get__(value)


def roots_of(target: Any, step: Any = None, iterator: Any = None) -> list[Root]:
    """List where the user's objects begin: the pipeline's parts, the user's modules."""
    loader = target.loader
    found = [Root("dataset", target.dataset, "dataset")] if target.dataset is not None else []
    parts = {
        "collate_fn": "collate", "sampler": "sampler", "batch_sampler": "sampler",
        "worker_init_fn": "loader", "generator": "loader",
    }  # fmt: skip
    for name, owner in parts.items():
        part = vars_of(loader).get(name)
        if part is not None:
            found.append(Root(name, part, owner))
    if step is not None:
        found.append(Root("step", step, "step"))
    if target.epoch_hook is not None:
        found.append(Root("epoch_hook", target.epoch_hook, "loader"))
    for module in user_modules():
        found += _of_module(module)
    found.append(Root("loader", loader, "loader"))
    if iterator is not None:
        found.append(Root("iterator", iterator, "loader"))
    return [root for root in found if not isinstance(root.value, OPAQUE)]


def user_modules() -> list[types.ModuleType]:
    """List the modules that are the user's own files."""
    return [
        module
        for module in list(sys.modules.values())
        if isinstance(module, types.ModuleType)
        and isinstance(getattr(module, "__file__", None), str)
        and is_user(str(module.__file__))
    ]


def _of_module(module: types.ModuleType) -> Iterator[Root]:
    """Yield globals of a user's module, attributes of its classes, and its functions' own state."""
    for name, value in list(vars(module).items()):
        if name.startswith("__") or isinstance(value, types.ModuleType):
            continue
        if isinstance(value, type):
            if value.__module__ == module.__name__:
                yield from _of_class(value, module.__name__)
            continue
        elsewhere = getattr(value, "__module__", None) not in (None, module.__name__)
        if isinstance(value, types.FunctionType) and elsewhere:
            continue
        full = f"{module.__name__}.{name}"
        yield Root(full, value, "module", name, "global", name, module)


def _of_class(kind: type, module: str) -> Iterator[Root]:
    for name, value in list(vars(kind).items()):
        if name.startswith("__") and not isinstance(value, types.FunctionType):
            continue
        shown = f"{kind.__name__}.{name}"
        inner = value
        if isinstance(value, staticmethod | classmethod):
            inner = value.__func__
        elif isinstance(value, property):
            inner = value.fget
        elif isinstance(value, functools.cached_property):
            inner = value.func
        if inner is not None:
            yield Root(f"{module}.{shown}", inner, "module", shown, "class", name, kind)
