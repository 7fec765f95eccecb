"""DLC504, DLC505, DLC510: shared memory, handles, threads and processes that pile up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlcheck.findings import ERROR, Finding, Where, rule
from dlcheck.growth import Growth, growth_of
from dlcheck.observation import Culprit, Observation, Split
from dlcheck.rules import keeping
from dlcheck.rules.keeping import WHO
from dlcheck.rules.room import epoch_of_job, epoch_seconds, filled, room, size

PREFETCH = 2
WORTH_SHARING = 1 << 20
PIPES = frozenset({"pipe", "socket", "other"})


@rule(
    "DLC504",
    severity=ERROR,
    needs="run",
    title="Shared memory grows, or does not hold the batches in flight",
    why="Shared memory (/dev/shm) is small, 64 MiB in a container unless told otherwise, and "
    "outlives the process; a worker that finds it full dies of a bus error.",
    fix="unlink() each segment once it was copied; keep clones (`x.clone()`), not the tensors that "
    "the loader gave; or give /dev/shm more room (docker run --shm-size).",
    yields_to=("graph-retained",),
)
def shm_growth(obs: Observation) -> Iterator[Finding]:
    """Fire where segments, or shared memory that is mapped, are more at the end of each epoch.

    Also where the batches that all workers have in flight exceed the shared memory there is.
    """
    for name, split in keeping.watched(obs):
        growth = _shared(split)
        if growth is not None and not _handles_end_first(obs, name, split, growth):
            yield _grows(obs, name, split, growth)
        else:
            yield from _does_not_fit(obs, name, split)


def _shared(split: Split) -> Growth | None:
    """Return the growth of segments, else of shared memory that the main process maps."""
    for resource in ("shm", "mapped"):
        growth = growth_of(split, resource, "main")
        if growth is not None and growth.grew and _worth(growth, split):
            return growth
    return None


def _worth(growth: Growth, split: Split) -> bool:
    named = growth_of(split, "shm", "main")
    grows = growth.resource == "shm" and named is not None
    return growth.sure or grows or bool(keeping.culprits(split, "main", "shm", *keeping.HEAP))


def _keeper(split: Split, *resources: str) -> tuple[str, Culprit | None]:
    """Return who makes, or keeps, what is shared: the makers first, in any process."""
    for role in ("worker", "main"):
        found = keeping.culprits(split, role, *resources)
        if found:
            return role, found[0]
    kept = keeping.culprits(split, "main", "handles", *keeping.HEAP)
    return "main", next((c for c in kept if c.attribute), None)


def _grows(obs: Observation, name: str, split: Split, growth: Growth) -> Finding:
    role, culprit = _keeper(split, "shm")
    space = room(obs)
    gain = epoch_of_job(obs, name, split, growth)
    ends = filled((space.shm or 0) - (growth.end or 0), gain, epoch_seconds(obs, name, split))
    said = f"shared memory grows by {size(growth.per_epoch)} an epoch ({_each(growth)})"
    if culprit is not None and culprit.attribute:
        said += f": {keeping.holder(culprit)} keeps what the loader gave"
    elif culprit is not None and culprit.line:
        said += f": {WHO[role]} makes segments at {keeping.made_at(culprit)} that nobody unlinks"
    if ends:
        said += f"\n{size(space.shm or 0)} of /dev/shm are full {ends}"
    evidence = keeping.facts(growth, culprit) | _segments(split, culprit)
    return Finding(said, keeping.place(name, culprit, growth, split), evidence)


def _each(growth: Growth) -> str:
    return f"{size(growth.per_batch)} a batch" if growth.per_batch else "a jump an epoch"


def _segments(split: Split, culprit: Culprit | None) -> dict[str, Any]:
    marks = split.processes[next(iter(split.processes))].marks
    names = [mark.shm_names for mark in marks if mark.shm_names is not None and mark.at == "end"]
    known: dict[str, Any] = {"segments": names} if names else {}
    if culprit is not None and culprit.detail.get("names"):
        known["names"] = list(culprit.detail["names"])[:4]
    return known


def _handles_end_first(obs: Observation, name: str, split: Split, shared: Growth) -> bool:
    """Tell whether open handles, one a tensor that is kept, run out before shared memory does."""
    handles = growth_of(split, "handles", "main")
    if handles is None or not handles.grew:
        return False
    space = room(obs)
    return _epochs(space.handles, handles, obs, name, split) <= _epochs(
        space.shm, shared, obs, name, split
    )


def _epochs(limit: int | None, growth: Growth, obs: Observation, name: str, split: Split) -> float:
    gain = epoch_of_job(obs, name, split, growth)
    return (limit - (growth.end or 0)) / gain if limit and gain > 0 else float("inf")


def _does_not_fit(obs: Observation, name: str, split: Split) -> Iterator[Finding]:
    """Compare the batches in flight with the shared memory that there is."""
    loader, space = split.loader, room(obs)
    if loader is None or not loader.num_workers or not space.shm:
        return
    sizes = [p.returned for one in split.processes.values() for p in one.points if p.returned]
    if not sizes:
        return
    need = max(sizes) * loader.num_workers * PREFETCH
    if need <= space.shm:
        return
    message = (
        f"batches of {size(max(sizes))}, {PREFETCH} ahead in each of {loader.num_workers} workers, "
        f"need {size(need)} of shared memory; there are {size(space.shm)}"
    )
    evidence = {"batch": size(max(sizes)), "workers": loader.num_workers, "prefetch": PREFETCH,
                "needed": size(need), "there": size(space.shm)}  # fmt: skip
    where = Where(name or None, attribute="num_workers", file=loader.file, line=loader.line)
    yield Finding(message, where, evidence)


@rule(
    "DLC505",
    severity=ERROR,
    needs="run",
    title="Open handles grow: files, sockets or pipes are opened and not closed",
    why="A process may hold about a thousand; the next open() then fails with EMFILE (too many "
    "open files), often in a line that is not to blame.",
    fix="Open with `with`, or once in each worker; keep numbers or clones of what the loader gave, "
    "since each of its tensors is a handle.",
    yields_to=("worker-pile-up",),
)
def fd_leak(obs: Observation) -> Iterator[Finding]:
    """Fire where a process holds more handles at the end of each epoch.

    Handles that workers inherit from the main process are counted in the main process alone.
    """
    for name, split in keeping.watched(obs):
        for role in keeping.ROLES:
            growth = growth_of(split, "handles", role)
            if growth is None or not growth.grew or _shm_ends_first(obs, name, split, role):
                continue
            found = keeping.culprits(split, role, "handles")
            if growth.sure or found:
                yield _handles(obs, name, split, role, growth)


def _shm_ends_first(obs: Observation, name: str, split: Split, role: str) -> bool:
    shared = _shared(split) if role == "main" else None
    return shared is not None and not _handles_end_first(obs, name, split, shared)


def _handles(obs: Observation, name: str, split: Split, role: str, growth: Growth) -> Finding:
    found = keeping.culprits(split, role, "handles")
    kept = [c for c in keeping.culprits(split, role, *keeping.HEAP, "shm") if c.attribute]
    opener = next(iter(found), None)
    keeper = next((c for c in (*found, *kept) if c.attribute), None)
    culprit = opener if opener and (opener.attribute or not keeper) else keeper
    limit = room(obs).handles
    gain = epoch_of_job(obs, name, split, growth) / max(growth.processes, 1)
    ends = filled((limit or 0) - (growth.end or 0), gain, epoch_seconds(obs, name, split))
    kinds = split.processes[growth.process].handle_kinds if growth.process else {}
    said = f"{WHO[role]} opens {_count(growth)} and does not close them"
    if culprit is not None and culprit.attribute:
        said += f": {keeping.holder(culprit)} keeps them"
    if opener is not None and opener.line:
        said += f", opened at {keeping.made_at(opener)}"
    if ends:
        said += f"\nthe limit of {limit:,} is reached {ends}"
    evidence = keeping.facts(growth, culprit) | {"kinds": dict(kinds), "limit": limit}
    if opener is not None:
        evidence |= {key: opener.detail[key] for key in ("kind", "paths", "path")
                     if key in opener.detail}  # fmt: skip
    return Finding(said, keeping.place(name, culprit, growth, split), evidence)


def _count(growth: Growth) -> str:
    more = f"{growth.per_epoch:,.0f} more handles with every epoch"
    return f"{more} ({growth.per_batch:.2g} a batch)" if growth.per_batch else more


@rule(
    "DLC510",
    severity=ERROR,
    needs="run",
    title="Threads or processes pile up",
    why="Each one keeps its stack, its queue and what it was given; the job slows down and at last "
    "cannot start another.",
    fix="Make the pool or thread once and reuse it, or end it where it was started: `with Pool()`, "
    "`shutdown()`, a stop event and `join()`.",
)
def worker_pile_up(obs: Observation) -> Iterator[Finding]:
    """Fire where a process has more threads or children at the end of each epoch."""
    for name, split in keeping.watched(obs):
        for role in keeping.ROLES:
            for resource in ("threads", "children"):
                growth = growth_of(split, resource, role)
                if growth is None or not growth.grew:
                    continue
                if growth.sure or keeping.culprits(split, role, resource):
                    yield _piled(obs, name, split, role, growth)


def _piled(obs: Observation, name: str, split: Split, role: str, growth: Growth) -> Finding:
    culprit = next(iter(keeping.culprits(split, role, growth.resource)), None)
    kind = "threads" if growth.resource == "threads" else "processes"
    said = (
        f"{WHO[role]} has {growth.per_epoch:,.0f} more {kind} after every epoch "
        f"({growth.start} to {growth.end})"
    )
    if culprit is not None and culprit.line:
        said += f", started at {keeping.made_at(culprit)}"
    if culprit is not None and culprit.attribute and culprit.owner != "thread":
        said += f"; {keeping.holder(culprit)} keeps them"
    evidence = keeping.facts(growth, culprit) | {"epoch_of_the_job": round(
        epoch_of_job(obs, name, split, growth), 1)}  # fmt: skip
    if culprit is not None and culprit.detail.get("name"):
        evidence["name"] = culprit.detail["name"]
        said += f" ({culprit.detail['name']})"
    return Finding(said, keeping.place(name, culprit, growth, split), evidence)
