"""Who keeps the graphs of earlier steps: the names that hold more of them than they did."""

from __future__ import annotations

from typing import Any

from dlcheck.observation import Culprit
from dlcheck.observers.attributes import Census, Walk, roots_of
from dlcheck.observers.grown import Growth
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
    told = {}
    for rank, one in enumerate(found[:MOST_KEEPERS]):
        node = one.node
        file = file_of(node)
        name = one.name.rpartition(".")[2].partition("[")[0]
        lines = stores(file, name) if file and name.isidentifier() else []
        at: dict[str, Any] = {}
        if lines:
            frame = frame_at(file, lines[0][0], lines[0][1])
            at = {"file": file, "line": lines[0][0], "function": lines[0][1], "text": frame["text"]}
        told[f"graph:main:seen{rank}"] = Culprit(
            "graph", "main", attribute=one.name, owner=node.owner, type=node.type,
            grew=one.series[-1] - one.series[0], unit="count", items=node.length or 0,
            detail={"class": node.cls, "bound": node.bound, "path": node.full}, **at,
        )  # fmt: skip
    return told
