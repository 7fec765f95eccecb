"""DLC501, DLC502, DLC509: memory that a pipeline keeps, sample after sample."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck.findings import ERROR, WARNING, Finding, Severity, Where, rule
from dlcheck.observation import Culprit, Observation, Split
from dlcheck.rules import keeping
from dlcheck.rules.keeping import Kept
from dlcheck.rules.room import (
    bytes_of,
    epoch_of_job,
    epoch_seconds,
    filled,
    full_length,
    room,
    size,
)
from dlcheck.rules.words import named

WORTH_PINNING = 1 << 20
WHO = keeping.WHO


@rule(
    "DLC501",
    severity=ERROR,
    needs="run",
    title="Memory grows with every sample, batch or epoch and does not level off",
    why="A job of many epochs ends in the kernel's out-of-memory killer, hours after the line that "
    "caused it; with workers the growth counts once for each of them.",
    fix="Clear the container at the start of each epoch, bound it (deque(maxlen=...)), or keep a "
    "running sum in place of the items.",
    yields_to=("graph-retained", "worker-pile-up", "fd-leak", "shm-growth"),
)
def host_leak(obs: Observation) -> Iterator[Finding]:
    """Fire where the live heap, or the number of Python objects, grows from epoch to epoch.

    Growth is judged after gc.collect() and after a first epoch of warm-up; workers that end with
    their epoch over the later half of their life. Caches that fill, and the few floats that a step
    appends for each batch, are left out.
    """
    for name, split in keeping.watched(obs):
        for one in keeping.kept(name, split):
            if keeping.view_of(one) is None and not keeping.is_cache(one):
                yield _leak(obs, one)


def _leak(obs: Observation, one: Kept) -> Finding:
    growth, culprit = one.growth, one.culprit
    gain = _job_epoch(obs, one)
    space = room(obs)
    left = (space.memory or 0) - (growth.end or 0 if growth.resource == "heap" else 0)
    ends = filled(left, gain, epoch_seconds(obs, one.name, one.split)) if not growth.within else ""
    said = [f"{WHO[one.role]} keeps {_speed(one)} and gives nothing back"]
    if culprit is not None and culprit.attribute:
        said.append(
            f": {keeping.holder(culprit)} held {culprit.items:,} items when it was driven again"
        )
    elif culprit is not None and culprit.line:
        said.append(f", allocated at {keeping.made_at(culprit)}")
    else:
        said.append("; no attribute or line was found to keep it")
    if ends:
        said.append(f"\n{size(space.memory or 0)} of {space.where} are full {ends}")
    if growth.within:
        said.append("\nit goes with the worker at the epoch's end; with persistent_workers=True "
                    "it would stay")  # fmt: skip
    evidence = keeping.facts(growth, culprit) | {"epoch_of_the_job": size(gain)}
    if one.others:
        evidence["also"] = [keeping.holder(c) if c.attribute else keeping.made_at(c)
                            for c in one.others[:4]]  # fmt: skip
    where = keeping.place(one.name, culprit, growth, one.split)
    return Finding("".join(said), where, evidence, severity=_leak_level(one, gain, space.memory))


def _leak_level(one: Kept, gain: float, memory: int | None) -> Severity:
    """Call it a warning where it ends with the worker and an epoch of the job fits."""
    fits = memory is None or gain < memory
    return WARNING if one.growth.within and fits else ERROR


def _speed(one: Kept) -> str:
    growth = one.growth
    if growth.resource != "objects":
        return f"{keeping.speed(growth)}{keeping.levelled(growth)}"
    counted = f"{growth.per_epoch:,.0f} more Python objects with every epoch"
    each = f"{growth.per_sample:.3g} a sample"
    known = f", {size(one.bytes_per_sample)} in bytes" if one.culprit else ""
    return f"{counted} ({each}{known})"


def _job_epoch(obs: Observation, one: Kept) -> float:
    """Return the bytes that all processes gain in an epoch of the real job."""
    length = full_length(obs, one.name, one.split)
    if length and one.growth.per_sample > 0:
        return one.bytes_per_sample * length
    gain = epoch_of_job(obs, one.name, one.split, one.growth)
    return gain if one.growth.resource == "heap" else one.bytes_per_epoch


@rule(
    "DLC502",
    severity=WARNING,
    needs="run",
    title="An attribute keeps every sample, once in each worker",
    why="Each worker is a process with a cache of its own: the whole dataset is held num_workers "
    "times, and what a shuffled epoch has not met yet is added in the next.",
    fix="Drop the cache, bound it (functools.lru_cache(maxsize=...)), or decode once, before the "
    "workers start, into one array that they share.",
)
def cache_growth(obs: Observation) -> Iterator[Finding]:
    """Fire where a mapping, or a list with a place for each sample, keeps what was read.

    The size that it will have is projected from a sample's bytes to the whole dataset in every
    worker; an error when that exceeds the memory there is.
    """
    for name, split in keeping.watched(obs):
        for one in keeping.kept(name, split):
            if keeping.view_of(one) is None and keeping.is_cache(one):
                yield _cache(obs, one)


def _cache(obs: Observation, one: Kept) -> Finding:
    growth, culprit = one.growth, one.culprit
    assert culprit is not None  # noqa: S101 - is_cache says so
    length = full_length(obs, one.name, one.split)
    workers = max(one.split.loader.num_workers if one.split.loader else 0, 1)
    workers = workers if one.role == "worker" else 1
    each = culprit.whole / culprit.items if culprit.whole and culprit.items else 0
    each = each or _item_bytes(culprit) or one.bytes_per_sample
    space = room(obs).memory
    evidence = keeping.facts(growth, culprit) | {"bytes_per_item": size(each), "workers": workers}
    said = f"{keeping.holder(culprit)} keeps {size(each)} of every sample in {WHO[one.role]}"
    level = WARNING
    if length:
        whole = each * length * workers
        times = f" in {workers} workers" if one.role == "worker" and workers > 1 else ""
        said += f": {size(whole)} for all {length:,}{times}"
        evidence["projected"] = size(whole)
        if space:
            said += f", of {size(space)} of {room(obs).where}"
            level = ERROR if whole > space else WARNING
    if growth.within:
        said += "; it is thrown away with the workers at each epoch's end, and helps nobody"
    where = keeping.place(one.name, culprit, growth, one.split)
    return Finding(said, where, evidence, severity=level)


def _item_bytes(culprit: Culprit) -> float:
    before, after = (culprit.detail.get("length") or (0, 0))[:2]
    added = (bytes_of(after) or 0) - (bytes_of(before) or 0)
    return culprit.grew / added if added > 0 and culprit.unit == "bytes" else 0.0


@rule(
    "DLC509",
    severity=WARNING,
    needs="run",
    title="A small view keeps a large storage alive",
    why="A slice of an array or tensor holds the whole of what it was cut from: keeping one row of "
    "each record keeps every record.",
    fix="Copy what is kept: `.copy()` for an array, `.clone()` for a tensor.",
)
def storage_pinned_by_view(obs: Observation) -> Iterator[Finding]:
    """Fire where what grew are views whose storages are several times what they show."""
    for name, split in keeping.watched(obs):
        accused = set()
        for one in keeping.candidates(name, split):
            view = keeping.view_of(one)
            if view is not None and view.grew >= min(WORTH_PINNING, one.bytes_per_epoch):
                accused.add(view.attribute)
                yield _pinned(one, view)
        for role in keeping.ROLES:
            yield from _shipped(name, split, role, accused)


def _pinned(one: Kept, view: Culprit) -> Finding:
    used = keeping.used(view)
    message = (
        f"{keeping.holder(view)} shows {size(used)} and keeps {size(view.whole)} alive in "
        f"{WHO[one.role]}: its items are views of storages {view.whole / used:,.0f} times as large"
    )
    evidence = keeping.facts(one.growth, view) | {"used": size(used), "kept": size(view.whole)}
    return Finding(message, keeping.place(one.name, view, one.growth, one.split), evidence)


def _shipped(name: str, split: Split, role: str, known: set[str]) -> Iterator[Finding]:
    """Accuse a field of the batch that is a view: the queue sends the whole storage."""
    for view in keeping.culprits(split, role, "view"):
        field = view.detail.get("field")
        if field is None or view.attribute in known:
            continue
        used = keeping.used(view)
        if view.whole < keeping.PINNED * used or view.grew < WORTH_PINNING:
            continue
        message = (
            f"{named(str(field))} shows {size(used)} of storages of {size(view.whole)}: a worker "
            "sends the whole storage, and what keeps the batch keeps it"
        )
        evidence = {"used": size(used), "shipped": size(view.whole),
                    "made_at": keeping.made_at(view)}  # fmt: skip
        where = Where(name or None, str(field), view.function or None, file=view.file or None,
                      line=view.line or None)  # fmt: skip
        yield Finding(message, where, evidence)
