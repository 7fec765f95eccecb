"""DLC503, DLC508, DLC511: memory that is copied, needed for a moment, or left to the collector."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from dlcheck.findings import WARNING, Finding, rule
from dlcheck.growth import MIB, Growth, growth_of
from dlcheck.observation import Culprit, Mark, Observation, Process, Split
from dlcheck.rules import keeping
from dlcheck.rules.keeping import WHO
from dlcheck.rules.room import room, size
from dlcheck.rules.words import base

PREFETCH = 2
LARGE_PEAK = 32 * MIB
TIMES_RETURNED = 8
UNCONFIRMED = 2
WORTH_COLLECTING = 2 * MIB
UNCONFIRMED_CYCLES = 8 * MIB
MANY_OBJECTS = 10_000
RECURS = 2


@rule(
    "DLC503",
    severity=WARNING,
    needs="run",
    title="Forked workers copy the dataset's Python objects page by page",
    why="Reading a Python object writes its reference count, so a worker gets a copy of every page "
    "that it reads from: memory rises towards the whole list times num_workers, and no code leaks.",
    fix="Keep the index in numpy or torch arrays: numbers as one array, strings as one bytes array "
    "with offsets (np.array(words, dtype='S') for short ones), records as columns.",
)
def copy_on_write(obs: Observation) -> Iterator[Finding]:
    """Fire where private memory of workers grows while what they hold does not."""
    for name, split in keeping.watched(obs):
        growth = growth_of(split, "copied", "worker")
        if growth is None or not growth.grew:
            continue
        found = [c for c in keeping.culprits(split, "worker", "shared")
                 if _objects(c) >= MANY_OBJECTS]  # fmt: skip
        found = found or [c for c in keeping.culprits(split, "main", "shared")
                          if _objects(c) >= MANY_OBJECTS]  # fmt: skip
        if found:
            yield _copied(obs, name, split, growth, found)


def _objects(culprit: Culprit) -> int:
    return int(culprit.detail.get("objects") or culprit.items)


def _copied(
    obs: Observation, name: str, split: Split, growth: Growth, found: list[Culprit]
) -> Finding:
    first = found[0]
    workers = max(split.loader.num_workers if split.loader else 1, 1)
    whole = (first.whole or first.grew) * workers
    item = f" ({first.detail['item']})" if first.detail.get("item") else ""
    said = (
        f"each worker made {size((growth.end or 0) - (growth.start or 0))} its own that it shared "
        f"with the main process: {keeping.holder(first)} is {_objects(first):,} Python objects"
        f"{item}\ncopied whole in {workers} workers they are {size(whole)}"
    )
    memory = room(obs).memory
    said += f" of {size(memory)} of {room(obs).where}" if memory else ""
    evidence = keeping.facts(growth, first) | {
        "objects": _objects(first), "projected": size(whole), "workers": workers,
        "also": [keeping.holder(c) for c in found[1:4]],
    }  # fmt: skip
    return Finding(said, keeping.place(name, first, growth, split), evidence)


@rule(
    "DLC508",
    severity=WARNING,
    needs="run",
    title="Making a batch needs many times the memory of what it returns",
    why="Every worker may reach its peak at the same moment, so temporaries count num_workers "
    "times; the job dies of them although nothing is kept.",
    fix="Work in the smallest dtype that does, sample by sample; write into an array made once "
    "(out=...); crop or resize before the costly step; del what is no longer used.",
)
def peak_temporaries(obs: Observation) -> Iterator[Finding]:
    """Fire where the peak of a batch is large and many times what it returns, epoch after epoch."""
    for name, split in keeping.watched(obs):
        for role in keeping.ROLES:
            peak, returned = peak_of(split, role)
            if not high(peak, returned):
                continue
            found = next(iter(keeping.culprits(split, role, "peak")), None)
            confirmed = found is not None and found.grew >= peak / 4
            if confirmed or peak >= UNCONFIRMED * LARGE_PEAK:
                yield _peaks(obs, name, split, role, found if confirmed else None)


def high(peak: float, returned: float) -> bool:
    """Tell a peak that is worth asking for from the buffers that any batch needs."""
    return peak >= LARGE_PEAK and peak >= TIMES_RETURNED * returned


def peak_of(split: Split, role: str) -> tuple[float, float]:
    """Return the bytes above rest that recur in each epoch, and those of a batch; 0 if unknown.

    The peak of a main process that also takes training steps is not the loader's.
    """
    processes = [p for p in split.processes.values() if p.role == role]
    points = [point for p in processes for point in p.points]
    sizes = [p.returned for p in points if p.returned]
    if not sizes:
        everyone = [point for p in split.processes.values() for point in p.points]
        sizes = [p.returned for p in everyone if p.returned]
    returned = statistics.median(sizes) if sizes else 0.0
    inside = [p.inside for p in points if p.inside is not None]
    if inside:
        return statistics.median(inside), returned
    if role == "main" and split.given.get("step"):
        return 0.0, returned
    peaks = [peak for process in processes for peak in _epoch_peaks(process)]
    return (float(min(peaks)) if peaks else 0.0), returned


def _epoch_peaks(process: Process) -> list[int]:
    """List the highest transient of each epoch after the first batch; warm-up is no habit."""
    by_epoch: dict[int, int] = {}
    before: Mark | None = None
    for mark in process.marks:
        if before is not None and mark.peak is not None and mark.at != "begin":
            grew = max((mark.rss or 0) - (before.rss or 0), 0)
            by_epoch[mark.epoch] = max(by_epoch.get(mark.epoch, 0), mark.peak - grew)
        before = mark
    later = {e: p for e, p in by_epoch.items() if e > process.born}
    return list((later or by_epoch).values())


def _peaks(obs: Observation, name: str, split: Split, role: str, found: Culprit | None) -> Finding:
    peak, returned = peak_of(split, role)
    workers = max(split.loader.num_workers if split.loader else 0, 1) if role == "worker" else 1
    memory = room(obs).memory
    times = f", {peak / returned:,.0f} times the {size(returned)} it returns" if returned else ""
    said = f"{WHO[role]} needs {size(peak)} for a moment to make a batch{times}"
    if found is not None and found.line:
        said += f", at {keeping.made_at(found)}"
    if workers > 1:
        said += f"\n{workers} workers at once: {size(peak * workers)}"
        said += f" of {size(memory)} of {room(obs).where}" if memory else ""
    evidence: dict[str, Any] = {"peak": size(peak), "returned": size(returned), "workers": workers}
    if found is not None:
        evidence["function"] = found.function
        lines = found.detail.get("lines") or ()
        evidence["lines"] = [f"{base(str(f))}:{n}: {text} ({size(b)})" for f, n, text, b in lines]
    process = next((n for n, p in split.processes.items() if p.role == role), "")
    where = keeping.place(name, found, Growth("peak", role, "", process), split)
    return Finding(said, where, evidence)


@rule(
    "DLC511",
    severity=WARNING,
    needs="run",
    title="Large memory hangs in reference cycles until the garbage collector runs",
    why="The collector counts objects, not bytes: a few cycles that hold large arrays wait for "
    "thousands of other allocations, and memory saw-tooths towards the limit.",
    fix="Break the cycle: do not keep an exception or its traceback in a local, do not store a "
    "closure or bound method of an object on itself, use weakref for the way back.",
)
def gc_cycles(obs: Observation) -> Iterator[Finding]:
    """Fire where gc.collect() alone frees much of the heap, more than once."""
    for name, split in keeping.watched(obs):
        for role in keeping.ROLES:
            freed = freed_of(split, role)
            if len(freed) < RECURS:
                continue
            found = next(iter(keeping.culprits(split, role, "cycles")), None)
            level = statistics.median(freed)
            # What a library leaves behind is nothing that the user could write otherwise.
            own = found is not None and bool(found.line)
            if own or level >= UNCONFIRMED_CYCLES:
                yield _cycles(name, split, role, freed, found)


def freed_of(split: Split, role: str) -> list[int]:
    """List what gc.collect() freed wherever that was much; the first mark clears up the start."""
    freed = []
    for process in split.processes.values():
        if process.role == role:
            freed += [
                mark.heap_before - mark.heap
                for mark in process.marks[1:]
                if mark.heap is not None and mark.heap_before is not None and mark.at != "begin"
            ]
    return [one for one in freed if one >= WORTH_COLLECTING]


def _cycles(name: str, split: Split, role: str, freed: list[int], found: Culprit | None) -> Finding:
    said = (
        f"gc.collect() alone frees up to {size(max(freed))} in {WHO[role]}: it is out of use and "
        "waits for the collector"
    )
    evidence: dict[str, Any] = {"freed": [size(one) for one in freed[:8]]}
    if found is not None:
        kind = found.type or "objects"
        said += f"; a cycle through {kind} holds it"
        if found.line:
            said += f", made at {keeping.made_at(found)}"
        if found.chain:
            said += f"\n{' -> '.join(found.chain)}"
        evidence |= {"type": found.type, "items": found.items, "chain": list(found.chain),
                     "made_at": keeping.made_at(found), "kept_by": found.stored_text,
                     "attribute": found.attribute}  # fmt: skip
    process = next((n for n, p in split.processes.items() if p.role == role), "")
    where = keeping.place(name, found, Growth("cycles", role, "", process), split)
    return Finding(said, where, {k: v for k, v in evidence.items() if v not in (None, "", [])})
