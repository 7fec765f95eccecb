"""What grew between censuses, under the name that a user would give it, and how to look again."""

from __future__ import annotations

import collections
import contextlib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlcheck.observers.attributes import CONTAINERS, Census, Node
from dlcheck.observers.roots import vars_of
from dlcheck.observers.sizes import length_of
from dlcheck.run.failures import is_user

LEAST = {"bytes": 512, "shared": 512, "objects": 8}
SHARE = 0.2
LITTLE = 0.05
MOST_GROWN = 8
MOST_INNER = 1_000
# What a torch module keeps under a name is an attribute to its user.
MODULES = re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]")
NAMES = ("cell", "default", "local", "global", "class")


@dataclass
class Grown:
    """A name that grew: `series` holds its figure at each census, `lengths` its items."""

    node: Node
    name: str
    series: list[int]
    lengths: list[int | None] = field(default_factory=list)
    objects: int = 0
    graphs: int = 0
    used: int = 0
    whole: int = 0
    shared: int = 0

    @property
    def grew(self) -> int:
        """Growth over the tracked epochs; over the first one for what stopped growing."""
        return self.late or self.series[-1] - self.series[0]

    @property
    def late(self) -> int:
        return max(0, self.series[-1] - self.series[_base(self.series)])

    @property
    def steady(self) -> bool:
        """Whether it grew in each of the tracked epochs."""
        return all(
            after > before
            for before, after in itertools.pairwise(self.series[_base(self.series) :])
        )


class Growth:
    """Compares four censuses or fewer: after a first few batches, then at each epoch's end."""

    def __init__(self, censuses: list[Census], of: str) -> None:
        self.least = LEAST.get(of, 1)
        self.censuses = censuses
        self.of = of
        self.last = censuses[-1].nodes
        self.totals = [census.totals(of) for census in censuses]
        self.children: dict[str, list[str]] = collections.defaultdict(list)
        for full, node in self.last.items():
            self.children[node.parent].append(full)

    def series(self, full: str) -> list[int]:
        return [totals.get(full, 0) for totals in self.totals]

    def delta(self, full: str) -> int:
        """Return the growth that counts: of the tracked epochs when there was any."""
        series = self.series(full)
        late = series[-1] - series[_base(series)]
        return late if late >= self.least or self._longer(full) else series[-1] - series[0]

    def _longer(self, full: str) -> bool:
        lengths = self._lengths(full)
        before, after = lengths[_base(lengths)], lengths[-1]
        return before is not None and after is not None and after > before

    def _lengths(self, full: str) -> list[int | None]:
        found = [census.nodes.get(full) for census in self.censuses]
        # A name that was not there yet held nothing.
        missing = 0 if found[-1] is not None and found[-1].length is not None else None
        return [node.length if node is not None else missing for node in found]

    def found(self) -> list[Grown]:
        """List what grew, most first; what still grew in the last epochs before what stopped."""
        picked: list[str] = []
        for full in self.children[""]:
            picked += self._pick(full)
        grown = [self._grown(full) for full in dict.fromkeys(map(self._mine, picked))]
        grown = [one for one in grown if one.grew >= self.least or one.steady]
        most = max((one.late for one in grown), default=0)
        grown.sort(key=lambda one: (-(one.late > SHARE * most / 4), -one.grew))
        top = grown[0].grew if grown else 0
        return [one for one in grown if one.grew >= LITTLE * top][:MOST_GROWN]

    def _pick(self, full: str) -> list[str]:
        """Descend to the names that explain the growth of one."""
        total = self.delta(full)
        if total <= 0:
            return []
        if self._longer(full) and isinstance(self.last[full].type, str):
            return [full]
        known = (
            full in self.censuses[0].nodes
            or full in self.censuses[min(1, len(self.censuses) - 1)].nodes
        )
        below = self.children[full] if known else []
        found: list[str] = []
        explained = 0
        for child in below:
            grew = self.delta(child)
            if grew > 0 and grew >= SHARE * total / 4:
                found += self._pick(child)
                explained += grew
        return found if found and explained >= total / 2 else [full, *found]

    def _grown(self, full: str) -> Grown:
        node = self.last[full]
        sums = {of: self._sum(full, of) for of in ("objects", "graphs", "used", "whole", "shared")}
        return Grown(node, self.shown(node), self.series(full), self._lengths(full), **sums)

    def _sum(self, full: str, of: str) -> int:
        node = self.last[full]
        return int(getattr(node, of)) + sum(self._sum(c, of) for c in self.children[full])

    def _mine(self, full: str) -> str:
        """Climb from what libraries keep inside to the name under which the user holds it."""
        one: str = full
        while one:
            node = self.last[one]
            users = of_user(node.holder if isinstance(node.holder, type) else type(node.holder))
            if node.kind in NAMES or (node.kind == "attribute" and users) or not node.parent:
                return one
            if node.kind == "item" and self._mine(node.parent) == node.parent:
                return one
            one = node.parent
        return full

    def shown(self, node: Node) -> str:
        """Write a name from the user's own class on."""
        edges = ""
        while node.kind == "item" and node.parent in self.last:
            edges = node.full[len(node.parent) :] + edges
            node = self.last[node.parent]
        return MODULES.sub(r".\1", node.name + edges)


def _base(series: Sequence[Any]) -> int:
    """Return where the tracked epochs begin: after the first one, where there is more than that."""
    return 1 if len(series) > 2 else 0  # noqa: PLR2004 - a beginning and an end


def of_user(kind: type) -> bool:
    """Tell a class that stands in a file of the user's own."""
    import sys

    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return isinstance(file, str) and is_user(file)


def meter(node: Node) -> Callable[[], Any] | None:
    """Return what reads how much a name holds now; None when it cannot be found again."""
    look = _look(node)
    if look is None:
        return None

    def measured() -> Any:
        with contextlib.suppress(Exception):
            return amount(look())
        return None

    return measured


def _look(node: Node) -> Callable[[], Any] | None:
    holder, key = node.holder, node.key
    looks: dict[str, Callable[[], Any]] = {
        "attribute": lambda: object.__getattribute__(holder, key),
        "global": lambda: vars(holder)[key],
        "class": lambda: getattr(holder, key),
        "item": lambda: holder[key],
        "cell": lambda: key.cell_contents,
        "default": lambda: _default(holder, key),
    }
    return looks.get(node.kind) if holder is not None else None


def _default(function: Any, name: str) -> Any:
    function = getattr(function, "__func__", function)
    code, defaults = function.__code__, function.__defaults__ or ()
    if name in (function.__kwdefaults__ or {}):
        return function.__kwdefaults__[name]
    takers = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    return defaults[takers.index(name)]


def amount(value: Any) -> Any:
    """Measure a value so that the measure rises or changes whenever something is stored in it."""
    kind = type(value)
    if hasattr(kind, "untyped_storage") and hasattr(kind, "_version"):
        return (id(value), value._version, value.numel())  # noqa: SLF001 - counts changes in place
    length, _ = length_of(value)
    if length is None:
        inner = [one for one in vars_of(value).values() if isinstance(one, CONTAINERS)]
        return sum(map(len, inner[:MOST_INNER])) if inner else id(value)
    if isinstance(value, CONTAINERS):
        items = value.values() if isinstance(value, dict) else value
        for one in itertools.islice(items, MOST_INNER):
            if isinstance(one, list | dict | set | collections.deque):
                length += len(one)
    return length
