"""From what the passes saw to culprits: plain data in, plain data out."""

from __future__ import annotations

import dataclasses
import itertools
import linecache
from collections.abc import Callable

from dlcheck.observation.memory import Culprit
from dlcheck.observers.storing import reads, stores
from dlcheck.run.passes import OF, SETS, Data

MOST_RANKS = 3
PINNED = 4
LEVEL = 4
MANY = 1_000
LITTLE = 4_096
TO_COMPARE = 3
LARGE_LINE = 0.25
ALLOCATED = ("heap", "objects", "view")


def nothing(resource: str, role: str, told: Data) -> Culprit:
    """Say that nothing was found, and how much the process itself grew or needed meanwhile."""
    series = told.get("blocks" if resource == "objects" else "heaps", [])
    grew = series[-1] - series[min(1, len(series) - 1)] if series else 0
    measured = max(0, grew) if resource in ("heap", "objects") else told.get("highest", 0)
    return Culprit(
        resource, role, grew=measured, unit=_unit(resource),
        samples=told.get("samples", 0), batches=told.get("batches", 0),
        detail={} if told.get("batches") else {"failed": True},
    )  # fmt: skip


def _unit(resource: str) -> str:
    return "bytes" if resource in ("heap", "view", "shm", "peak", "cycles", "shared") else "count"


def kept(resource: str, role: str, told: Data, followed: Data) -> list[Culprit]:
    """Name what grew for one resource: by the lines that open and start, and by attribute."""
    rows = grown(resource, told)
    if resource == "view":
        rows = [row for row in rows if row["whole"] >= PINNED * max(1, row["used"]) > 0]
    found = [_attribute(resource, role, row, told, followed) for row in rows[:MOST_RANKS]]
    left = followed.get("left", {}).get(resource, [])
    if resource in SETS and left:
        made = [_made(resource, role, one, followed) for one in left]
        return [_joined(made[0], found[0] if found else None), *made[1:]]
    if resource in SETS and rows is not told.get("grown", {}).get(OF[resource]):
        return []
    if resource == "heap" and followed.get("stayed"):
        return [*_stayed(role, followed["stayed"], followed["native"])[:1], *found]
    if not found and resource in ("heap", "objects"):
        return _allocated(resource, role, told)
    return found


def grown(resource: str, told: Data) -> list[Data]:
    """List the names that may keep a resource.

    What a library opens is seen in no attribute: a list that got longer may be what keeps it.
    """
    by_kind = told.get("grown", {})
    rows: list[Data] = by_kind.get(OF[resource], [])
    if rows or resource not in SETS:
        return rows
    return [row for row in by_kind.get("bytes", []) if _longer(row)]


def _longer(row: Data) -> bool:
    first, last = row["lengths"][0], row["lengths"][-1]
    return first is not None and last is not None and last > first


def unexplained(told: Data) -> bool:
    """Tell that the heap grew by far more than the attributes and lines that are known."""
    heaps = told.get("heaps", [])
    if len(heaps) < TO_COMPARE:
        return False
    grew = heaps[-1] - heaps[1]
    attributes = sum(max(row["late"], 0) for row in told["grown"].get("bytes", []))
    lines = sum(sum(windows[1:]) for _, _, windows, _ in told["rows"] if min(windows[1:]) > 0)
    return bool(grew > LITTLE and max(attributes, lines) < LARGE_LINE * grew)


def _stayed(role: str, rows: list[Data], native: Data) -> list[Culprit]:
    """Name the lines that take memory which only the C heap knows of."""
    return [
        Culprit(
            "heap", role, file=row["file"], line=row["line"], text=row["text"],
            function=row["function"], chain=tuple(row["chain"]), grew=row["bytes"],
            samples=native["samples"], batches=native["batches"],
            detail={"native": True, "times": row["times"]},
        )
        for row in rows
        if row["times"] > 1
    ]  # fmt: skip


def _attribute(resource: str, role: str, row: Data, kept: Data, followed: Data) -> Culprit:
    keeper = followed.get("keepers", {}).get(row["full"]) or _by_source(row)
    series, lengths = row["series"], row["lengths"]
    windows = [after - before for before, after in itertools.pairwise(series)]
    late = row["late"] > 0
    culprit = Culprit(
        resource, role, attribute=row["name"], owner=row["owner"], type=row["type"],
        grew=row["grew"], unit=_unit(resource), items=row["length"] or 0, whole=series[-1],
        samples=kept["samples" if late else "samples_in_all"],
        batches=kept["batches" if late else "batches_in_all"],
        chain=tuple(keeper.get("chain", ())) if keeper else (),
        detail={
            "class": row["cls"], "path": row["full"], "item": row["item"], "windows": windows,
            "by_epoch": windows[1:], "lengths": lengths[1:], "bound": row["bound"],
            "mapping": row["type"] in MAPPINGS, "levels_off": _levels_off(windows),
            "used": row["used"], "whole": row["whole"], "shared": row["shared"],
            "graphs": row["graphs"],
        },
    )  # fmt: skip
    if resource == "view":
        changed = {"items": row["used"], "whole": row["whole"]}
        culprit = dataclasses.replace(culprit, **changed)
    return _placed(culprit, keeper, _allocation(resource, row, kept, keeper))


MAPPINGS = ("dict", "defaultdict", "OrderedDict", "_lru_cache_wrapper")


def _levels_off(windows: list[int]) -> bool:
    """Tell that the last epoch kept less than a quarter of what the first one did."""
    return len(windows) > 1 and windows[-1] * LEVEL < max(windows[0], 1)


def _by_source(row: Data) -> Data | None:
    """Find the storing line in the source, where no run showed it."""
    name = row["name"].rpartition(".")[2].partition("[")[0]
    found = stores(row["file"], name) if row["file"] and name.isidentifier() else []
    if not found:
        return None
    line, function = found[0]
    text = linecache.getline(row["file"], line).strip()[:300]
    return {"file": row["file"], "line": line, "function": function, "text": text, "chain": ()}


def _allocation(
    resource: str, row: Data, kept: Data, keeper: Data | None
) -> tuple[str, int] | None:
    """Choose the allocating line whose figures come nearest to what the attribute gained."""
    near: list[tuple[float, tuple[str, int]]] = []
    if resource not in ALLOCATED:
        return None
    gained = max(row["series"][-1] - row["series"][0], 1)
    for file, line, grew, blocks in kept.get("rows", []):
        ratio = (blocks if resource == "objects" else sum(grew)) / gained
        if LARGE_LINE <= ratio <= 1 / LARGE_LINE:
            same = keeper is not None and file == keeper["file"]
            near.append((abs(ratio - 1) - same / 2, (file, line)))
    return min(near)[1] if near else None


def _placed(culprit: Culprit, keeper: Data | None, line: tuple[str, int] | None) -> Culprit:
    """Add the allocating line and the storing one; either stands for the other."""
    detail = dict(culprit.detail)
    stored: Data = {}
    if keeper is not None:
        stored = {"stored_line": keeper["line"], "stored_text": keeper["text"]}
        stored["function"] = keeper["function"]
        line = line or (keeper["file"], keeper["line"])
        if line[0] != keeper["file"]:
            detail["stored_file"] = keeper["file"]
    if line is None:
        return dataclasses.replace(culprit, detail=detail)
    text = linecache.getline(*line).strip()[:300]
    return dataclasses.replace(
        culprit, file=line[0], line=line[1], text=text, detail=detail, **stored
    )


def _made(resource: str, role: str, one: Data, followed: Data) -> Culprit:
    """Name the line that opens or starts what is left over."""
    return Culprit(
        resource, role, file=one["file"], line=one["line"], text=one["text"],
        function=one["function"], chain=tuple(one["chain"]), grew=one["count"], unit="count",
        items=one["count"], samples=followed["samples"], batches=followed["batches"],
        detail={"names": one["names"], "name": one["names"][0]}
        | (_opened(one["names"][0]) if resource == "handles" else {}),
    )  # fmt: skip


def _opened(name: str) -> Data:
    return {"path": name, "kind": _kind(name)}


def _kind(name: str) -> str:
    starts = {"socket:": "socket", "pipe:": "pipe", "/dev/shm": "memory", "/memfd": "memory"}  # noqa: S108
    kind = next((kind for start, kind in starts.items() if name.startswith(start)), "")
    return kind or ("file" if name.startswith("/") else "other")


def _joined(made: Culprit, keeps: Culprit | None) -> Culprit:
    """Add to an opening line the attribute that keeps what it opens."""
    if keeps is None:
        return made
    return dataclasses.replace(
        made, attribute=keeps.attribute, owner=keeps.owner, type=keeps.type,
        stored_line=keeps.stored_line, stored_text=keeps.stored_text,
        detail={**keeps.detail, **made.detail},
    )  # fmt: skip


def _allocated(resource: str, role: str, kept: Data) -> list[Culprit]:
    """Name the lines whose allocations stay, where no attribute is known to hold them."""
    found = []
    for file, line, grew, blocks in kept.get("rows", [])[:MOST_RANKS]:
        amount = blocks if resource == "objects" else sum(grew)
        found.append(
            Culprit(
                resource,
                role,
                file=file,
                line=line,
                grew=amount,
                unit=_unit(resource),
                text=linecache.getline(file, line).strip()[:300],
                samples=kept["samples_in_all"],
                batches=kept["batches_in_all"],
                detail={"windows": grew, "by_epoch": grew[1:], "blocks": blocks},
            )
        )
    return found


def shipped(role: str, told: Data) -> list[Culprit]:
    """Name the fields of a batch that drag large storages along."""
    found = []
    for one in told.get("views", []):
        place = one["place"] or {}
        at = {name: place[name] for name in ("file", "line", "text", "function") if place}
        culprit = Culprit(
            "view", role, attribute=one["field"], owner="batch", type="Tensor", items=one["used"],
            grew=one["whole"] - one["used"], whole=one["whole"], samples=told["samples"],
            batches=told["batches"], detail={"field": one["field"], "shipped": one["whole"]},
        )  # fmt: skip
        found.append(dataclasses.replace(culprit, **at))
    return found


def peak(role: str, told: Data) -> list[Culprit]:
    peaks = told.get("peaks", [])
    if not peaks:
        return []
    rows = [[p["file"], p["line"], p["text"], p["own"]] for p in peaks]
    most = max(p["highest"] for p in peaks)
    top = peaks[0]
    return [
        Culprit(
            "peak", role, file=top["file"], line=top["line"], text=top["text"],
            function=top["function"], grew=most, whole=told["returned"], chain=tuple(top["chain"]),
            samples=told["samples"], batches=told["batches"],
            detail={"returned": told["returned"], "stage": top["function"], "lines": rows},
        )
    ]  # fmt: skip


def cycles(role: str, told: Data) -> list[Culprit]:
    return [
        Culprit(
            "cycles", role, attribute=one["attribute"], type=one["type"], file=one["file"],
            line=one["line"], text=linecache.getline(one["file"], one["line"]).strip()[:300],
            function=one["function"], grew=one["bytes"], items=one["objects"],
            chain=tuple(one["chain"]), samples=told["samples"], batches=told["batches"],
            detail={"cycles": one["cycles"]},
        )
        for one in told.get("cycles", [])
    ]  # fmt: skip


def shared(role: str, told: Data) -> list[Culprit]:
    executed = {(file, line) for file, line in told.get("executed", [])}
    found = []
    rows = [row for row in told.get("grown", []) if row["objects"] >= MANY]
    for row in rows[:MOST_RANKS]:
        name = row["name"].rpartition(".")[2].partition("[")[0]
        read = [n for n in reads(row["file"], name) if (row["file"], n) in executed]
        line = read[0] if read else 0
        found.append(
            Culprit(
                "shared",
                role,
                attribute=row["name"],
                owner=row["owner"],
                type=row["type"],
                file=row["file"],
                line=line,
                grew=row["bytes"],
                items=row["objects"],
                text=linecache.getline(row["file"], line).strip()[:300],
                samples=told["samples"],
                batches=told["batches"],
                whole=row["bytes"],
                detail={
                    "class": row["cls"],
                    "path": row["full"],
                    "objects": row["objects"],
                    "length": row["length"],
                    "item": row["item"],
                    "read": bool(read),
                },
            )
        )
    found.sort(key=lambda culprit: not culprit.detail["read"])
    return found


ALONE: dict[str, Callable[[str, Data], list[Culprit]]] = {
    "peak": peak, "cycles": cycles, "shared": shared,
}  # fmt: skip
