"""Drive the photos once, watched or bare, and print the CPU seconds of this process and workers."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time


def seconds() -> float:
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    return total


def bare(loader: object, epochs: int = 1) -> None:
    for _ in range(epochs):
        for _ in loader:  # type: ignore[attr-defined]
            pass


def metered(loader: object) -> None:
    drive = Drive(
        WATCH,
        Target(loader, loader.dataset),  # type: ignore[attr-defined]
        Plan(3600.0, None, 0, epochs=EPOCHS),
    )
    measure(drive)
    assert drive.batches
    assert not drive.stopped


def watched(loader: object) -> None:
    target = Target(loader, loader.dataset)  # type: ignore[attr-defined]
    drive = Drive(WATCH, target, Plan(3600.0, None, 0))
    assert drive.epoch(0, float("inf"))


def bare_epochs(loader: object) -> None:
    bare(loader, EPOCHS if sys.argv[1] == "bare-epochs" else 1)


EPOCHS = 3
RUNS = {"watched": watched, "metered": metered}

if __name__ == "__main__":
    from pipelines import make_photos

    if sys.argv[1] in RUNS:
        from dlcheck.run.drive import Drive, Plan
        from dlcheck.run.epochs import measure
        from dlcheck.run.hooks import install
        from dlcheck.run.scratch import Scratch
        from dlcheck.run.target import Target
        from dlcheck.run.watch import Watch

        WATCH = Watch(Scratch(tempfile.mkdtemp(prefix="dlcheck-bench-")))
        WATCH.scratch.begin()
        install(WATCH)
    loader = make_photos()
    loader.dataset[0]
    cpu, wall = seconds(), time.perf_counter()
    RUNS.get(sys.argv[1], bare_epochs)(loader)
    json.dump({"cpu": seconds() - cpu, "wall": time.perf_counter() - wall}, sys.stdout)
