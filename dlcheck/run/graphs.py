"""Who keeps the graphs of earlier steps: the names that hold more of them than they did."""

from __future__ import annotations

import gc
import sys
from typing import Any

from dlcheck.observation import Culprit
from dlcheck.observers.attributes import CACHE, CONTAINERS, Census, Walk
from dlcheck.observers.grown import Growth
from dlcheck.observers.lengths import is_users
from dlcheck.observers.roots import roots_of
from dlcheck.observers.steps import Follower, with_history
from dlcheck.observers.storing import stores
from dlcheck.run.failures import frame_at
from dlcheck.run.passes import file_of

MOST_KEEPERS = 3
MOST_TENSORS = 64
LEVELS = 4


def census(target: Any) -> Census:
    """Count what each name of the user's holds now."""
    return Walk().run(roots_of(target, target.step))


def keepers(follower: Follower, target: Any) -> dict[str, Culprit]:
    """Name who keeps the graphs that piled up, the one that keeps most first."""
    if not follower.censuses or not follower.grew():
        return {}
    found = Growth([*follower.censuses, census(target)], "graphs").found()
    told = [
        _culprit(
            one.name, file_of(one.node), node.cls, owner=node.owner, type=node.type,
            grew=one.series[-1] - one.series[0], items=node.length or 0, bound=node.bound,
        )
        for one in found[:MOST_KEEPERS]
        for node in (one.node,)
        if node.type != CACHE.__name__
    ]  # fmt: skip
    told = told or [_culprit(*holder) for holder in holders(with_history())]
    return {f"graph:main:seen{rank}": one for rank, one in enumerate(told[:MOST_KEEPERS])}


def _culprit(
    attribute: str, file: str, cls: str, *, bound: int | None = None, **more: Any
) -> Culprit:
    """Make a culprit with the line that stores into an attribute, where the source shows one."""
    name = attribute.rpartition(".")[2].partition("[")[0]
    lines = stores(file, name) if file and name.isidentifier() else []
    at: dict[str, Any] = {}
    if lines:
        line, function = lines[0]
        text = frame_at(file, line, function)["text"]
        at = {"file": file, "line": line, "function": function, "text": text}
    detail = {"class": cls, "bound": bound}
    given: dict[str, Any] = {"owner": "step", "grew": 1, "unit": "count", **more}
    return Culprit("graph", "main", attribute=attribute, detail=detail, **at, **given)


def holders(tensors: list[Any]) -> list[tuple[str, str, str]]:
    """Name the attributes of the user's objects that lead to some tensors: (name, file, class)."""
    found: dict[tuple[str, str, str], None] = {}
    # What was reached, by id, with the key under which the last mapping on the way held it.
    level = {id(one): (one, "") for one in tensors[:MOST_TENSORS]}
    seen = {id(tensors), *level}
    for _ in range(LEVELS):
        values = [one for one, _ in level.values()]
        above: dict[int, tuple[Any, str]] = {}
        for one in gc.get_referrers(*values) if values else ():
            if id(one) in seen or one is values or len(above) >= MOST_TENSORS:
                continue
            seen.add(id(one))
            kind = type(one)
            if is_users(kind):
                name = _attribute(one, level)
                file = str(getattr(sys.modules.get(kind.__module__), "__file__", ""))
                found[f"self.{name}", file, kind.__name__] = None
            elif kind in CONTAINERS:
                above[id(one)] = (one, _key(one, level))
        level = above
    return [one for one in found if one[0] != "self."]


def _attribute(holder: Any, level: dict[int, tuple[Any, str]]) -> str:
    """Return the name under which an object holds one of some values; empty if it does not."""
    held = getattr(holder, "__dict__", {})
    if id(held) in level:
        return level[id(held)][1]
    return _key(held, level)


def _key(mapping: Any, level: dict[int, tuple[Any, str]]) -> str:
    if type(mapping) is not dict:
        return ""
    return next((str(name) for name, one in list(mapping.items()) if id(one) in level), "")
