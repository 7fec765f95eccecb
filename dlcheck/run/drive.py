"""The one drive of the user's loader."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlcheck.observers.batches import SampleCount
from dlcheck.observers.describe import Described, batch_length, describe
from dlcheck.observers.device import OnDevice
from dlcheck.observers.memory import Meter
from dlcheck.observers.steps import Follower
from dlcheck.run import spread, torch_private
from dlcheck.run.blame import unable
from dlcheck.run.facts import length_of
from dlcheck.run.failures import failure_of, safe_text
from dlcheck.run.hooks import follow_stateful
from dlcheck.run.scratch import read_pulse
from dlcheck.run.watch import Watch

MOST_FAILED_BATCHES = 64
CHEAP_EPOCH = 1 / 6
SPREAD_SHARE = 0.25
ENDLESS = 2
VALUED_BATCHES = 2
MOST_WORKERS = 4


@dataclass
class Plan:
    """How far to go. `samples` is the most to read: None for what the budget allows, -1 for all.

    `epochs` of at most `epoch_batches` batches are those of a leak run.
    """

    budget: float
    samples: int | None
    seed: int
    epochs: int = 0
    epoch_batches: int | None = None


@dataclass
class Drive:
    """One split's loader on its way, with what was seen of it so far."""

    watch: Watch
    target: Any
    plan: Plan
    samples: int = 0
    batches: int = 0
    failed: int = 0
    stopped: str = ""
    step: Callable[[Any], Any] | None = None
    meter: Meter | None = None
    device: OnDevice | None = None
    follower: Follower | None = None
    kept: list[Any] = field(default_factory=list)
    names: tuple[str, ...] = ()
    leaves: list[Described] = field(default_factory=list)
    shard: tuple[int, int] | None = None

    def run(self) -> None:
        """Iterate the user's loader as a training job would; look further where time is left."""
        follow_stateful(self.watch)
        begun = time.monotonic()
        everything = self.plan.samples == -1
        self.deadline = float("inf") if everything else begun + self.plan.budget
        share = SPREAD_SHARE if self.sized() is not None else 0.0
        finished = self.epoch(0, self.deadline - self.plan.budget * share)
        spent = time.monotonic() - begun
        if finished and not self.failed and not self.full():
            if spent < self.plan.budget * CHEAP_EPOCH and not self.plan.epochs:
                self.epoch(1, self.deadline)
        elif not (self.stopped or finished or self.full() or everything):
            self.spread()
        self.watch.driving = False
        self.watch.note(seconds=round(time.monotonic() - begun, 3))

    def sized(self) -> int | None:
        """Return len(dataset) of a map-style dataset, None for streams."""
        dataset = self.target.dataset
        if dataset is None or torch_private.is_iterable_dataset(dataset):
            return None
        return length_of(dataset)

    def full(self) -> bool:
        """Tell whether as many samples were read as asked for."""
        asked = self.plan.samples
        return asked is not None and 0 <= asked <= self.samples

    def epoch(self, number: int, deadline: float, most: int | None = None) -> bool:
        """Read one epoch, or as much of it as the plan allows; True when it came to its end.

        `most` is the number of batches after which to stop.
        """
        self.watch.epoch, self.watch.driving = number, False
        self.watch.note(epochs=number + 1)
        before = self.samples
        try:
            if self.target.epoch_hook is not None:
                self.target.epoch_hook(self.target.loader, number)
        except BaseException as error:  # noqa: BLE001 - the user's failure is what we look for
            self.fail(error, "hook")
            return False
        self.watch.begin_epoch(number)
        try:
            iterator = iter(self.target.loader)
        except BaseException as error:  # noqa: BLE001
            if not self.watch.knows(error):
                self.fail(error, "iter")
            self.stopped = "failed"
            return False
        ended = self.batches_of(iterator, deadline, before, most)
        if ended and not self.failed:
            self.watch.note(finished_epochs=number + 1)
        return ended

    def batches_of(
        self, iterator: Any, deadline: float, before: int, most: int | None = None
    ) -> bool:
        """Take batches until the end, the deadline or a failure that ends the loader."""
        endless = self.endless()
        last = float("inf") if most is None else self.batches + most
        while True:
            try:
                batch = next(iterator)
            except StopIteration:
                return True
            except BaseException as error:  # noqa: BLE001
                if not self.survived(error, iterator):
                    return False
                continue
            size = self.take(batch)
            stepped = self.stepped(batch)
            del batch
            self.counted(size)
            read = self.samples - before
            if time.monotonic() > deadline or self.full() or (endless and read >= endless):
                return False
            if not stepped or self.batches >= last:
                return False

    def endless(self) -> int:
        """Return the number of samples after which a sized dataset shows an endless sampler."""
        size = self.batch_size() or 1
        planned = (length_of(self.target.loader) or 0) * size
        length = self.sized()
        return ENDLESS * max(length, planned) + size if length else 0

    def survived(self, error: BaseException, iterator: Any) -> bool:
        """Write the failure down; True when the loader can go on with its next batch."""
        self.failed += 1
        dead = dead_workers(iterator)
        known = self.watch.knows(error) or self.written_by_worker(error)
        if not known or dead:
            self.fail(error, "batch", dead)
            return False
        if not torch_private.is_loader(self.target.loader) or not isinstance(error, Exception):
            self.stopped = "failed"
            return False
        return self.failed < MOST_FAILED_BATCHES

    def written_by_worker(self, error: BaseException) -> bool:
        """Tell whether a worker raised this and has written it down itself."""
        with contextlib.suppress(OSError):
            if "in DataLoader worker process" not in safe_text(error):
                return False
            mine = f"obs-{self.watch.scratch.pid}.jsonl"
            files = [p for p in Path(self.watch.scratch.folder).glob("obs-*") if p.name != mine]
            return any('"failed":true' in p.read_text("utf-8", "replace") for p in files)
        return False

    def fail(
        self, error: BaseException, phase: str, dead: list[dict[str, Any]] | None = None
    ) -> None:
        """Write a failure that no fetcher saw."""
        self.failed += 1
        self.stopped = "failed"
        detail: dict[str, Any] = {"workers": dead} if dead else {}
        with contextlib.suppress(TypeError):
            if dead:
                folder = Path(self.watch.scratch.folder)
                detail["last_sample"] = read_pulse(folder / f"pulse-{dead[0]['pid']}")[2]
        self.watch.fail(failure_of(error, phase, detail=detail), error)

    def take(self, batch: Any) -> int:
        """Count a batch that the loader gave; returns the number of its samples."""
        self.batches += 1
        part: dict[str, Any] = {"batches": 1}
        hooked = self.watch.hooked or self.batch_size() is not None
        if self.watch.values:
            number = self.number()
            valued = number < VALUED_BATCHES or not hooked
            self.leaves = describe(batch, values=valued, names=self.watch.names)
            seen = SampleCount()
            seen.count(number, self.leaves)
            part["batch_fields"] = seen.fields()
        elif not hooked or self.batches == 1:
            self.leaves = describe(batch, values=False, names=self.watch.names)
        size = self.batch_size() if hooked else batch_length(self.leaves)
        self.samples += size or 1
        if not hooked:
            counted = "again" if self.watch.epoch else "samples"
            part |= {counted: size, "batch_sizes": {str(size): {"n": 1, "at": []}}}
        self.watch.note(**part)
        return size or 1

    def number(self) -> int:
        """Return the place of the last batch among those of all ranks."""
        rank, of = self.shard or (0, 1)
        return rank + of * (self.batches - 1)

    def stepped(self, batch: Any) -> bool:
        """Call the user's step; False when it raised."""
        meter, resident = self.meter, None
        if meter is not None and meter.watched():
            meter.returned(batch)
            resident = meter.before() if self.step is not None else None
        if self.watch.values and self.target.step is not None:
            # The first and the latest, for the step to be tried on when all is read.
            self.kept[1:] = [batch]
        if self.step is None and self.device is None:
            return True
        try:
            self.hand_over(batch)
        except BaseException as error:  # noqa: BLE001 - the user's failure is what we look for
            why = unable(error)
            if not why:
                self.fail(error, "step")
                return False
            self.step = None
            self.watch.note(steps={"reason": why})
        if meter is not None:
            meter.after(resident, "step")
        return True

    def hand_over(self, batch: Any) -> None:
        """Give the step its batch, on the device where there is one."""
        if self.device is not None:
            self.device.give(batch, self.step, self.watch.epoch)
        elif self.step is not None:
            self.step(batch)

    def counted(self, size: int) -> None:
        """Read the counters of this process, now that the batch is gone."""
        if self.follower is not None:
            self.follower.stepped()
        if self.meter is not None:
            self.meter.made(size)
            self.meter.point()
            self.meter.passed()

    def batch_size(self) -> int | None:
        """Return the batch size of a loader whose samples the hooks see."""
        loader = self.target.loader
        if not torch_private.is_loader(loader):
            return None
        size = getattr(loader, "batch_size", None)
        if size is not None:
            return int(size)
        sampler = getattr(loader, "batch_sampler", None)
        return int(getattr(sampler, "batch_size", 1) or 1) if sampler is not None else None

    def spread(self) -> None:
        """Draw samples from all over a dataset of which the loader's start was read."""
        loader = self.target.loader
        length = self.sized()
        if not length or not torch_private.is_loader(loader):
            return
        batches = spread.batches(loader, length, self.plan.seed, self.deadline)
        if not batches:
            return
        from torch.utils.data import DataLoader

        # Datasets that open their files in worker_init_fn work in a worker alone.
        drawn = DataLoader(
            loader.dataset, batch_sampler=batches, collate_fn=loader.collate_fn,
            num_workers=min(loader.num_workers, MOST_WORKERS),
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context if loader.num_workers else None,
        )  # fmt: skip
        with self.watch.spreading():
            self.drain(iter(drawn))

    def drain(self, iterator: Any) -> None:
        """Take what the spread gives until its time is over."""
        while time.monotonic() < self.deadline and self.failed < MOST_FAILED_BATCHES:
            try:
                next(iterator)
            except StopIteration:
                return
            except BaseException as error:  # noqa: BLE001
                if not self.survived(error, iterator):
                    return


def dead_workers(iterator: Any) -> list[dict[str, Any]]:
    """List the workers of a torch iterator that ended with a signal or a status."""
    dead = []
    for number, worker in enumerate(torch_private.workers_of(iterator)):
        with contextlib.suppress(Exception):
            worker.join(0.2) if not worker.is_alive() else None
            if worker.exitcode not in (None, 0):
                dead.append({"worker": number, "pid": worker.pid, "exitcode": worker.exitcode})
    return dead
