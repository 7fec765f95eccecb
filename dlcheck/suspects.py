"""What the parent asks once epochs were measured: more of them, or who keeps what grew."""

from __future__ import annotations

import itertools
from typing import Any

from dlcheck.growth import BOTH, SATURATING, growth_of, growths
from dlcheck.observation import Observation, Split

FURTHER = 3
# So many epochs tell what fills up from what grows for ever.
MOST_EPOCHS = 5
EPOCHS = 3
MOST_BATCHES = 64
MEASURED = ("heap", "objects", "shm", "handles", "threads", "children")
KEPT = ("heap", "objects", "resident")
ASKED = {
    "heap": ("heap", "view"),
    "objects": ("objects", "heap", "view"),
    "resident": ("heap", "view"),
    "copied": ("shared",),
    "shm": ("shm", "heap"),
    "mapped": ("shm", "heap"),
    "handles": ("handles", "heap"),
    "threads": ("threads",),
    "children": ("children",),
}


def further(observation: Observation, name: str) -> int:
    """Say how many more epochs would tell what fills up from what grows for ever."""
    split = observation.splits.get(name)
    if split is None or split.failures:
        return 0
    asking = [
        one
        for one in growths(split)
        if one.resource in MEASURED
        and 0 < one.epochs < MOST_EPOCHS
        and (one.state == SATURATING or one.late)
    ]
    return FURTHER if asking else 0


def leak_requests(observation: Observation) -> list[dict[str, Any]]:
    """Ask the probe who keeps what grew, and who needs or leaves what was seen to pass."""
    from dlcheck.rules.passing import freed_of, high, peak_of

    requests = []
    for name, split in observation.splits.items():
        if split.loader is None or not split.processes:
            continue
        for role in BOTH:
            wanted = [part for one in growths(split) if one.grew and one.role == role
                      for part in ASKED[one.resource]]  # fmt: skip
            if role == "worker" and split.loader.num_workers and made_elsewhere(split):
                wanted.append("shm")
            if role == "main" and split.given.get("step") and set(wanted) & set(KEPT):
                wanted.append("graph")
            if freed_of(split, role):
                wanted.append("cycles")
            if high(*peak_of(split, role)):
                wanted.append("peak")
            if wanted:
                requests.append({"split": name, "kind": "leak", "roles": [role],
                                 "resources": list(dict.fromkeys(wanted)), "epochs": EPOCHS,
                                 "batches": batches(split, role)})  # fmt: skip
    return requests


def made_elsewhere(split: Split) -> bool:
    """Tell whether segments grew, which are counted in the main process and made in any."""
    growth = growth_of(split, "shm", "main")
    return growth is not None and growth.grew


def batches(split: Split, role: str) -> int:
    """Return the batches of an epoch as it was measured; of a worker its own share."""
    marks = [mark for process in split.processes.values() if process.role == role
             for mark in process.marks if mark.at == "end"]  # fmt: skip
    by_epoch: dict[int, int] = {}
    for mark in marks:
        by_epoch[mark.epoch] = max(by_epoch.get(mark.epoch, 0), mark.batches)
    known = sorted(by_epoch.values())
    longest = max((b - a for a, b in itertools.pairwise(known)), default=0)
    return max(1, min(longest or max(known, default=MOST_BATCHES), MOST_BATCHES))
