"""What the tests of the child side share: a drive in this process, and torch put back after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcheck.observation import Observation


class Driven:
    """A loader that was driven: what was seen of it, and the drive itself."""

    def __init__(self, observation: Observation, drive: Any, watch: Any) -> None:
        self.observation = observation
        self.split = observation.splits.get("")
        self.drive = drive
        self.watch = watch
        self.failures = list(self.split.failures.values()) if self.split else []


def read(folder: Path) -> Observation:
    """Merge what all processes wrote to a scratch folder."""
    found = Observation()
    for path in sorted(folder.glob("obs-*.jsonl")):
        for line in path.read_text().splitlines():
            found = found.merge(Observation.from_json(json.loads(line).get("obs", {})))
    return found


@pytest.fixture
def torch_as_it_was() -> Iterator[None]:
    """Put back what the hooks replace in torch."""
    pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    from dlcheck.run import torch_private

    fetch, iterator = torch_private.fetch_module(), torch_private.multiprocessing_iterator()
    kept = [
        (fetch, "_MapDatasetFetcher"),
        (fetch, "_IterableDatasetFetcher"),
        (iterator, "__init__"),
        (DataLoader, "__init__"),
        (DataLoader, "_index_sampler"),
    ]
    before = [getattr(owner, name) for owner, name in kept]
    yield
    for (owner, name), value in zip(kept, before, strict=True):
        setattr(owner, name, value)


@pytest.fixture
def watch(tmp_path: Path, torch_as_it_was: None) -> Any:
    """Hooks in place, writing to a scratch folder of the test's own."""
    from dlcheck.run.hooks import install, note_construction
    from dlcheck.run.scratch import Scratch
    from dlcheck.run.watch import Watch

    folder = tmp_path / "scratch"
    folder.mkdir()
    watch = Watch(Scratch(str(folder)))
    assert install(watch) == []
    note_construction(watch)
    return watch


@pytest.fixture
def driven(watch: Any) -> Callable[..., Driven]:
    """Drive a loader as the child does, in this process."""
    from dlcheck.run.drive import Drive, Plan
    from dlcheck.run.facts import loader_facts
    from dlcheck.run.target import Target

    def run(
        loader: Any,
        *,
        budget: float = 20.0,
        samples: int | None = None,
        epoch_hook: Callable[..., Any] | None = None,
    ) -> Driven:
        target = Target(loader, getattr(loader, "dataset", None), epoch_hook=epoch_hook)
        watch.note(loader=loader_facts(loader, watch.made_at.get(id(loader)), []))
        drive = Drive(watch, target, Plan(budget, samples, 0))
        drive.run()
        return Driven(read(Path(watch.scratch.folder)), drive, watch)

    return run
