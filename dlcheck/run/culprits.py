"""Who keeps what: the probe's answer to a request of kind `leak`.

Each pass runs in a fork of the probe, from the state before anything was drawn, within its time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import linecache
import multiprocessing
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from dlcheck.observation import plain
from dlcheck.observation.memory import Culprit
from dlcheck.observers.handles import SHM, follow_segments
from dlcheck.observers.storing import reads, stores
from dlcheck.run import passes
from dlcheck.run.passes import OF, SETS, Data, Job
from dlcheck.run.rounds import unhooked
from dlcheck.run.scratch import Scratch
from dlcheck.run.watch import die_with_parent

SECONDS = 30.0
LEAST_SECONDS = 4.0
OVERTIME = 1.5
STARTING = 10.0
SILENCE = 4.0
MOST_RANKS = 3
PINNED = 4
LEVEL = 4
MANY = 1_000
LARGE_LINE = 0.25
MOST_MESSAGE = 1 << 24
KEEPING = set(OF)
Alive = Callable[[], None]
ALONE: dict[str, Callable[[Job], Data]] = {
    "peak": passes.spend, "cycles": passes.collect, "shared": passes.share,
}  # fmt: skip


def answer(request: Data, target: Any, scratch: Scratch) -> None:
    """Explain each resource in each role, and write the culprits as they are found."""
    follow_segments(scratch.folder)
    prepare(target)
    begun = time.time()
    alive = partial(scratch.write, obs={})
    roles = [role for role in ("main", "worker") if role in request.get("roles", ("main",))]
    for role in roles:
        for key, culprit in _explained(request, role, target, len(roles), alive):
            told = {key: plain(culprit)}
            scratch.write(obs={"splits": {request["split"]: {"culprits": told}}})
    _clear_segments(scratch.folder, begun)


def prepare(target: Any) -> None:
    """Import once what the first step of an optimizer would import in every pass."""
    if getattr(target, "step", None) is not None:
        with contextlib.suppress(Exception):
            importlib.import_module("torch._dynamo")


def _explained(
    request: Data, role: str, target: Any, roles: int, alive: Alive
) -> Iterator[tuple[str, Culprit]]:
    resources = tuple(request.get("resources") or ("heap",))
    keeping = tuple(one for one in resources if one in KEEPING)
    alone = [one for one in resources if one in ALONE]
    parts = roles * (len(alone) + 3 * bool(keeping))
    seconds = max(LEAST_SECONDS, float(request.get("seconds") or SECONDS) / max(1, parts))
    job = Job(target, role, keeping, int(request.get("batches") or 0), seconds)
    if keeping:
        kept = forked(partial(passes.keep, job), seconds, alive)
        kept |= {"rows": []}
        if {"heap", "objects", "view"} & set(keeping):
            kept["rows"] = forked(partial(passes.allocate, job), seconds, alive).get("rows", [])
        names = _names(kept, keeping)
        followed = forked(partial(passes.lines, job, names), seconds, alive)
        for resource in keeping:
            found = _kept(resource, role, kept, followed)
            yield from _ranked(resource, role, found or [_nothing(resource, role, kept)])
    for resource in alone:
        told = forked(partial(ALONE[resource], job), seconds, alive)
        compose = {"peak": _peak, "cycles": _cycles, "shared": _shared}[resource]
        yield from _ranked(resource, role, compose(role, told) or [_nothing(resource, role, told)])


def _ranked(resource: str, role: str, found: list[Culprit]) -> Iterator[tuple[str, Culprit]]:
    for rank, culprit in enumerate(found[:MOST_RANKS]):
        yield f"{resource}:{role}:{rank}", culprit


def _names(kept: Data, resources: tuple[str, ...]) -> list[str]:
    """List the names whose storing lines are wanted, those of each resource in turn."""
    found: list[str] = []
    for rank in range(MOST_RANKS):
        for resource in resources:
            rows = kept.get("grown", {}).get(OF[resource], [])
            found += [row["full"] for row in rows[rank : rank + 1]]
    return list(dict.fromkeys(found))


def _nothing(resource: str, role: str, told: Data) -> Culprit:
    """Say that nothing was found, and how much the process itself grew meanwhile."""
    series = told.get("blocks" if resource == "objects" else "heaps", [])
    grew = series[-1] - series[min(1, len(series) - 1)] if series else 0
    counted = resource in ("heap", "objects", "view", "graph")
    return Culprit(
        resource, role, grew=max(0, grew) if counted else 0, unit=_unit(resource),
        samples=told.get("samples", 0), batches=told.get("batches", 0),
        detail={} if told.get("batches") else {"failed": True},
    )  # fmt: skip


def _unit(resource: str) -> str:
    return "bytes" if resource in ("heap", "view", "shm", "peak", "cycles", "shared") else "count"


def _kept(resource: str, role: str, kept: Data, followed: Data) -> list[Culprit]:
    """Name what grew for one resource: by the lines that open and start, and by attribute."""
    rows = kept.get("grown", {}).get(OF[resource], [])
    if resource == "view":
        rows = [row for row in rows if row["whole"] >= PINNED * max(1, row["used"]) > 0]
    found = [_attribute(resource, role, row, kept, followed) for row in rows[:MOST_RANKS]]
    left = followed.get("left", {}).get(resource, [])
    if resource in SETS and left:
        made = [_made(resource, role, one, followed) for one in left]
        return [_joined(made[0], found[0] if found else None), *made[1:]]
    if not found and resource in ("heap", "objects"):
        return _allocated(resource, role, kept)
    return found


def _attribute(resource: str, role: str, row: Data, kept: Data, followed: Data) -> Culprit:
    keeper = followed.get("keepers", {}).get(row["full"]) or _by_source(row)
    series, lengths = row["series"], row["lengths"]
    windows = [after - before for before, after in zip(series, series[1:], strict=False)]
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
        culprit = dataclasses.replace(culprit, **changed)  # type: ignore[arg-type]
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
        detail={
            "names": one["names"], "path": one["names"][0], "kind": _kind(one["names"][0]),
            "name": one["names"][0],
        },
    )  # fmt: skip


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
                resource, role, file=file, line=line, grew=amount, unit=_unit(resource),
                text=linecache.getline(file, line).strip()[:300],
                samples=kept["samples_in_all"], batches=kept["batches_in_all"],
                detail={"windows": grew, "by_epoch": grew[1:], "blocks": blocks},
            )  # fmt: skip
        )
    return found


def _peak(role: str, told: Data) -> list[Culprit]:
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


def _cycles(role: str, told: Data) -> list[Culprit]:
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


def _shared(role: str, told: Data) -> list[Culprit]:
    executed = {(file, line) for file, line in told.get("executed", [])}
    found = []
    rows = [row for row in told.get("grown", []) if row["objects"] >= MANY]
    for row in rows[:MOST_RANKS]:
        name = row["name"].rpartition(".")[2].partition("[")[0]
        read = [n for n in reads(row["file"], name) if (row["file"], n) in executed]
        line = read[0] if read else 0
        found.append(
            Culprit(
                "shared", role, attribute=row["name"], owner=row["owner"], type=row["type"],
                file=row["file"], line=line, grew=row["bytes"], items=row["objects"],
                text=linecache.getline(row["file"], line).strip()[:300],
                samples=told["samples"], batches=told["batches"], whole=row["bytes"],
                detail={"class": row["cls"], "path": row["full"], "objects": row["objects"],
                        "length": row["length"], "item": row["item"], "read": bool(read)},
            )  # fmt: skip
        )
    found.sort(key=lambda culprit: not culprit.detail["read"])
    return found


def forked(work: Callable[[], Data], seconds: float, alive: Alive) -> Data:
    """Run a pass in a process of its own; empty when it failed or did not end in its time.

    `alive` is called now and then, so that the parent waits.
    """
    if not hasattr(os, "fork"):
        return {}
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            os.setpgid(0, 0)
            die_with_parent()
            passes.settle()
            unhooked()
            data = json.dumps(work(), default=str).encode() + b"\n"
            while data:
                data = data[os.write(writing, data) :]
        finally:
            with contextlib.suppress(BaseException):
                _leave()
            os._exit(0)
    os.close(writing)
    try:
        return _received(reading, time.monotonic() + OVERTIME * seconds + STARTING, alive)
    finally:
        os.close(reading)
        _end(pid)


def _received(reading: int, deadline: float, alive: Alive) -> Data:
    """Read one line of JSON; other processes may hold the pipe open, so its end is no sign."""
    data = b""
    while not data.endswith(b"\n") and len(data) < MOST_MESSAGE:
        left = deadline - time.monotonic()
        if left <= 0:
            return {}
        if not select.select([reading], [], [], min(left, SILENCE))[0]:
            alive()
            continue
        part = os.read(reading, 1 << 16)
        if not part:
            return {}
        data += part
    found: Data = json.loads(data)
    return found


def _end(pid: int) -> None:
    """End a pass and the workers of its group."""
    limit = time.monotonic() + 1.0
    while time.monotonic() < limit:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                break
        time.sleep(0.005)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.waitpid(pid, os.WNOHANG)


def _leave() -> None:
    """End the workers, and let torch's manager of shared memory clear up."""
    for child in multiprocessing.active_children():
        child.terminate()


def _clear_segments(folder: str, begun: float) -> None:
    """Remove the shared memory that the passes made by name."""
    for path in Path(folder).glob("segments-*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime >= begun:
                for name in path.read_text("utf-8", "replace").split():
                    with contextlib.suppress(OSError):
                        (Path(SHM) / name).unlink()
