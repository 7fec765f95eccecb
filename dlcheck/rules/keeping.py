"""What rules on memory ask of a split: which growth counts, who keeps it, and where that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlcheck.findings import NotApplicable, Unobserved, Where
from dlcheck.growth import GROWING, SATURATING, Growth, growth_of
from dlcheck.observation import Culprit, Observation, Split
from dlcheck.rules.room import size

WATCHING = ("leak", "gate")
ROLES = ("main", "worker")
WHO = {"main": "the main process", "worker": "each worker"}
HEAP = ("heap", "objects")
# Of these the line that opens or starts is at fault, whoever keeps them.
OPENED = ("handles", "threads", "children", "shm")
KEYED = ("dict", "cache", "map", "shelf")
# Rough bytes of a small object of Python's own allocator, where only their number is known.
OBJECT_BYTES = 64
FEW_BLOCKS = 16
METRICS = 1024
LEVELLED = 1 / 4
MOST_OF_ALL = 0.6
PINNED = 4
MOST_TEXT = 120
LEAST_SHARE = 1 / 5
MOST_TIMES = 100


@dataclass(frozen=True)
class Kept:
    """Memory that one role keeps: what grew, and who the probe found to keep it, if it did."""

    name: str
    split: Split
    role: str
    growth: Growth
    culprit: Culprit | None
    others: tuple[Culprit, ...] = ()

    @property
    def bytes_per_sample(self) -> float:
        unit = OBJECT_BYTES if self.growth.resource == "objects" else 1
        return max(self.growth.per_sample * unit, _of(self.culprit, "samples"))

    @property
    def bytes_per_epoch(self) -> float:
        """Of one process."""
        if self.growth.resource != "objects":
            return self.growth.per_epoch
        if self.growth.per_sample > 0:
            return self.bytes_per_sample * self.growth.per_epoch / self.growth.per_sample
        return self.growth.per_epoch * OBJECT_BYTES


def _of(culprit: Culprit | None, over: str) -> float:
    """Return the bytes that a culprit grew per sample or batch; 0 where it is not counted."""
    count = getattr(culprit, over, 0)
    return culprit.grew / count if culprit and culprit.unit == "bytes" and count else 0.0


def watched(obs: Observation) -> Iterator[tuple[str, Split]]:
    """Yield the splits whose processes were watched over epochs.

    Raises:
        NotApplicable: none was to be.
        Unobserved: none was, though the command does.
    """
    known = [(name, split) for name, split in obs.splits.items() if split.processes]
    if not known and obs.settings.get("command") in WATCHING:
        raise Unobserved(obs.cut or "the pipeline failed before epochs could be compared")
    if not known:
        message = "no epochs were watched; `dlcheck leak` does"
        raise NotApplicable(message)
    yield from known


def culprits(split: Split, role: str, *resources: str) -> list[Culprit]:
    """Return what the probe could name for a role, the best first.

    Where it could not, it says how much grew, and nothing else.
    """
    found = sorted(split.culprits.items())
    return [
        c for _, c in found
        if c.role == role and c.resource in resources and c.grew > 0
        and (c.attribute or c.line or c.type or c.detail.get("field") is not None)
    ]  # fmt: skip


def candidates(name: str, split: Split) -> Iterator[Kept]:
    """Yield the roles whose memory grew by more than a step's metrics."""
    for role in ROLES:
        growth = memory_growth(split, role)
        if growth is None:
            continue
        found = [c for c in culprits(split, role, *HEAP) if credible(c, growth)]
        one = Kept(name, split, role, growth, found[0] if found else None, tuple(found[1:]))
        if not metrics(one):
            yield one


def kept(name: str, split: Split) -> Iterator[Kept]:
    """Yield the roles whose memory grows without an end in sight.

    What might as well level off must have been seen to grow by the probe too.
    """
    for one in candidates(name, split):
        if not bounded(one) and (one.culprit is not None or plain(one.growth)):
            yield one


def credible(culprit: Culprit, growth: Growth) -> bool:
    """Tell a culprit that grew as what was measured did from what a walk only met on its way.

    A cache that is filled anew gains much faster than one that is nearly full.
    """
    parts = list(culprit.detail.get("by_epoch") or ())
    grew_twice = "by_epoch" not in culprit.detail or (bool(parts) and min(parts) > 0)
    if not growth.sure and not (grew_twice and culprit.attribute):
        return False
    known = culprit.unit == "bytes" and growth.resource == "heap" and culprit.samples
    rate = culprit.grew / max(culprit.samples, 1) / max(growth.per_sample, 1)
    return not known or LEAST_SHARE <= rate <= MOST_TIMES


def plain(growth: Growth) -> bool:
    """Tell growth that stands without a culprit: not a few small objects a batch."""
    return growth.sure and (growth.resource != "objects" or growth.per_batch > FEW_BLOCKS)


def memory_growth(split: Split, role: str) -> Growth | None:
    """Choose the growth that says most: of bytes, else of Python's small objects."""
    for resource in (*HEAP, "resident"):
        growth = growth_of(split, resource, role)
        if growth is None or (resource == "resident" and growth_of(split, "heap", role)):
            continue
        if growth.grew:
            return growth
    return None


def metrics(one: Kept) -> bool:
    """Tell the few floats that a step appends for every batch from what samples leave behind."""
    if one.role != "main" or not one.split.given.get("step"):
        return False
    if one.culprit is not None and one.culprit.owner in {"dataset", "transform", "collate"}:
        return False
    if _of(one.culprit, "batches") > METRICS:
        return False
    if one.growth.resource == "objects":
        return one.growth.per_batch <= FEW_BLOCKS
    return one.growth.per_batch <= METRICS


def bounded(one: Kept) -> bool:
    """Tell what stops by itself, long before it has kept every sample, as the probe saw it."""
    culprit = one.culprit
    if culprit is None:
        return False
    if isinstance(culprit.detail.get("bound"), int):
        return True
    if not levels_off(culprit):
        return False
    length = one.split.of or 0
    return not (length and culprit.items >= MOST_OF_ALL * length)


def levels_off(culprit: Culprit) -> bool:
    """Tell whether the last epoch that the probe drove added far less than the first."""
    parts = list(culprit.detail.get("windows") or ())
    if len(parts) < 2:  # noqa: PLR2004
        return False
    return float(parts[-1]) < LEVELLED * float(max(parts))


def is_cache(one: Kept) -> bool:
    """Tell what keeps a thing per sample of the dataset from what grows with every batch."""
    culprit, length = one.culprit, one.split.of
    if culprit is None or culprit.owner == "step":
        return False
    if length and culprit.items > length:
        return False
    kind = culprit.type.lower()
    before, after = _lengths(culprit)
    filled = before is not None and before == after
    # The histories of losses that were summed are no samples, however unevenly they grow.
    graphs = bool(culprit.detail.get("graphs"))
    fills = one.growth.state == SATURATING and bool(length) and not graphs
    return any(word in kind for word in KEYED) or filled or fills


def _lengths(culprit: Culprit) -> tuple[Any, Any]:
    parts = list(culprit.detail.get("length") or ())
    return (parts[0], parts[-1]) if len(parts) > 1 else (None, None)


def view_of(one: Kept) -> Culprit | None:
    """Return the view that pins most of what grew; None when growth is what is used."""
    for culprit in culprits(one.split, one.role, "view"):
        known = one.culprit is not None and culprit.attribute == one.culprit.attribute
        if culprit.whole >= PINNED * used(culprit) and (
            known or culprit.grew >= one.bytes_per_epoch / 2
        ):
            return culprit
    return None


def used(view: Culprit) -> int:
    """Return the bytes that a view shows of the storages it keeps."""
    return max(view.items, 1)


def place(name: str, culprit: Culprit | None, growth: Growth, split: Split) -> Where:
    """Point at the line that keeps a thing, else at the one that makes it."""
    number = None
    process = split.processes.get(growth.process)
    if process is not None and process.role == "worker":
        number = process.number
    if culprit is None or not (culprit.line or culprit.stored_line):
        loader = split.loader
        return Where(
            name or None, worker=number, file=loader.file if loader else None,
            line=loader.line if loader else None,
            attribute=culprit.attribute or None if culprit else None,
        )  # fmt: skip
    file, line = culprit.file, culprit.line
    if culprit.stored_line and not (line and culprit.resource in OPENED):
        file, line = str(culprit.detail.get("stored_file") or file), culprit.stored_line
    return Where(
        name or None, stage=culprit.detail.get("class") or culprit.function or None,
        file=file or None, line=line or None, attribute=culprit.attribute or None, worker=number,
    )  # fmt: skip


def holder(culprit: Culprit) -> str:
    """Name an attribute as a user would: `self.results` (list) of PaperSequence."""
    owner = str(culprit.detail.get("class") or "")
    # A class's or a module's attribute is written with its owner's name already.
    of = f" of {owner}" if owner and not culprit.attribute.startswith(owner) else ""
    kind = f" ({culprit.type})" if culprit.type else ""
    return f"`{culprit.attribute}`{kind}{of}"


def made_at(culprit: Culprit) -> str:
    """Quote the line that allocates, opens or starts: `data.py:12: img = cv2.resize(...)`."""
    if not culprit.line:
        return ""
    file = culprit.file.replace("\\", "/").rpartition("/")[2]
    text = f": {culprit.text[:MOST_TEXT]}" if culprit.text else ""
    return f"{file}:{culprit.line}{text}"


def facts(growth: Growth, culprit: Culprit | None) -> dict[str, Any]:
    """Gather the figures of a growth and what is known of its culprit, without what is empty."""
    counted = growth.resource in {"objects", "handles", "threads", "children"}
    known: dict[str, Any] = {
        "process": growth.process,
        "processes": f"{growth.processes} of {growth.of}" if growth.of > 1 else "",
        "resource": growth.resource,
        "by_epoch" if not growth.within else "in_one_epoch": list(growth.series[-12:]),
        "per_epoch": round(growth.per_epoch) if counted else size(growth.per_epoch),
        "per_sample": round(growth.per_sample, 2) if counted else size(growth.per_sample),
        "noise_per_epoch": round(growth.noise) if counted else size(growth.noise),
    }
    if culprit is not None:
        known |= {
            "attribute": culprit.attribute,
            "path": culprit.detail.get("path"),
            "owner": culprit.owner,
            "type": culprit.type,
            "items": culprit.items,
            "holds": culprit.detail.get("item"),
            "made_at": made_at(culprit),
            "kept_by": culprit.stored_text,
            "chain": list(culprit.chain),
        }
    return {key: value for key, value in known.items() if value not in (None, "", [], 0)}


def speed(growth: Growth) -> str:
    """Say how fast a process gains: `3.1 MiB more with every epoch (10.6 KiB a sample)`."""
    if growth.within:
        by_end = f"{size(growth.per_epoch)} by the epoch's end"
        return f"{size(growth.per_sample)} more with every sample ({by_end})"
    return f"{size(growth.per_epoch)} more with every epoch ({size(growth.per_sample)} a sample)"


def levelled(growth: Growth) -> str:
    return " (less from epoch to epoch)" if growth.state == SATURATING else ""


def steady(growth: Growth) -> bool:
    return growth.state == GROWING
