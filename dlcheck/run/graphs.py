"""Who keeps the graphs of earlier steps: the names that hold more of them than they did."""

from __future__ import annotations

from typing import Any

from dlcheck.observation import Culprit
from dlcheck.observers.attributes import Census, Walk
from dlcheck.observers.grown import Growth
from dlcheck.observers.roots import roots_of
from dlcheck.observers.steps import Follower
from dlcheck.observers.storing import stores
from dlcheck.run.failures import frame_at
from dlcheck.run.passes import file_of

MOST_KEEPERS = 3


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
        if node.type != CACHE
    ]  # fmt: skip
    told = told or [_culprit(*holder) for holder in holders(roots())]
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
    given = {"owner": "step", "grew": 1, "unit": "count"} | more
    return Culprit("graph", "main", attribute=attribute, detail=detail, **at, **given)


def holders(tensors: list[Any]) -> list[tuple[str, str, str]]:
    """Name the attributes of the user's objects that lead to some tensors: (name, file, class)."""
    found: dict[tuple[str, str, str], None] = {}
    level = list(tensors[:MOST_TENSORS])
    seen = {id(level), id(tensors), id(found)} | {id(one) for one in level}
    for _ in range(LEVELS):
        above: list[Any] = []
        for one in gc.get_referrers(*level) if level else ():
            if id(one) in seen or isinstance(one, types.FrameType | types.ModuleType):
                continue
            seen.add(id(one))
            kind = type(one)
            name = _attribute(one, level) if is_users(kind) else None
            if name is not None:
                file = str(getattr(sys.modules.get(kind.__module__), "__file__", ""))
                found[f"self.{name}", file, kind.__name__] = None
            elif kind in CONTAINERS:
                above.append(one)
        level = above[:MOST_TENSORS]
    return list(found)


def _attribute(holder: Any, values: list[Any]) -> str | None:
    """Return the name under which an object holds one of some values."""
    ids = {id(one) for one in values}
    for name, value in list(getattr(holder, "__dict__", {}).items()):
        if id(value) in ids or id(holder.__dict__) in ids:
            return str(name)
    return None
