"""The drive of a live loader, in the user's own process: a test, a notebook, a training script.

Hooks only: no probe is forked, no signal or fault handler is set, no file is kept. What the drive
disturbs is put back: torch's fetcher classes, a live iterator, and every random generator that the
loader can reach, so that training goes on as if nobody had looked.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlcheck.run import contract, refusal, replay, torch_private
from dlcheck.run.drive import Drive, Plan
from dlcheck.run.errand import versions
from dlcheck.run.facts import loader_facts, name_of
from dlcheck.run.failures import failure_of, keyed
from dlcheck.run.hooks import install
from dlcheck.run.scratch import Scratch
from dlcheck.run.target import NoPipeline, Target, targets_of
from dlcheck.run.watch import Watch

GIVEN = ("fields", "expect", "model", "full_length")


class QuietScratch(Scratch):
    """Writes what is seen, and leaves the process's fault handler and signals as they are."""

    def begin(self) -> None:
        """Give the process no pulse: nobody watches it for a hang."""


class LiveWatch(Watch):
    """Writes failures of the pipeline; what is meant for the process itself passes."""

    def fail(self, failure: dict[str, Any], error: BaseException) -> None:
        """Write a failure, unless it is Ctrl-C or a test runner's own exception."""
        if not isinstance(error, Exception | SystemExit):
            raise error
        super().fail(failure, error)


class LiveDrive(Drive):
    """Drives a loader in a process that may hold an accelerator."""

    def survived(self, error: BaseException, iterator: Any) -> bool:
        """Write a failure down, unless it is Ctrl-C or a test runner's own exception."""
        if not isinstance(error, Exception | SystemExit):
            raise error
        goes_on = super().survived(error, iterator)
        # torch's frames hold the exception and the iterator in a circle; its workers must end with
        # the drive, not when some fork of the process collects garbage.
        traceback.clear_frames(error.__traceback__)
        return goes_on

    def spread(self) -> None:
        """Draw from all over the dataset, unless that would fork a process that has CUDA."""
        workers: int = getattr(self.target.loader, "num_workers", 0)
        if not (cuda_is_up() and workers):
            super().spread()


def cuda_is_up() -> bool:
    """Tell whether this process has a CUDA context; makes none."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return bool(cuda is not None and cuda.is_initialized())


def observe(given: Any, spec: dict[str, Any], model: Any, plan: Plan, folder: str) -> None:
    """Drive what was given for a check, and write what is seen to a folder."""
    watch = LiveWatch(QuietScratch(folder))
    watch.scratch.write(obs={"versions": versions()})
    try:
        targets = targets_of(given, spec["role"])
    except NoPipeline as refused:
        watch.note(failures=keyed(failure_of(refused, "target", frames=[])))
        return
    share = Plan(plan.budget / max(len(targets), 1), plan.samples, plan.seed)
    if model is not None:
        named = model if isinstance(model, type) or not hasattr(model, "forward") else type(model)
        spec = {**spec, "model": {"_target_": name_of(named)}}
    drives: dict[str, Drive] = {}
    fields = spec.get("fields")
    for name, target in targets.items():
        watch.split, watch.hooked = name, False
        watch.names = tuple(map(str, fields)) if isinstance(fields, list) else ()
        with hooked(watch), undisturbed(target):
            _introduce(watch, target, spec)
            drives[name] = LiveDrive(watch, target, share)
            drives[name].run()
            watch.written = None
    specs = {name: {**spec, "model": on_meta(model)} for name in drives}
    contract.note_batchnorm(watch, drives, specs)
    refusal.note_refusal(watch, drives, specs)


def on_meta(model: Any) -> Any:
    """Copy a model, or make it by its class or function, without memory for its weights.

    None stays None; what cannot be copied is left out, as if no model was given.
    """
    torch = sys.modules["torch"]
    if model is None:
        return None
    with contextlib.suppress(Exception), torch.device("meta"):
        if not isinstance(model, torch.nn.Module):
            return model()
        tensors = [*model.parameters(), *model.buffers()]
        empty = {id(one): _emptied(torch, one) for one in tensors}
        return copy.deepcopy(model, empty)
    return None


def _emptied(torch: Any, tensor: Any) -> Any:
    bare = torch.empty_like(tensor, device="meta")
    return torch.nn.Parameter(bare) if isinstance(tensor, torch.nn.Parameter) else bare


def _introduce(watch: Watch, target: Target, spec: dict[str, Any]) -> None:
    notes = ["checked in its own process: no sample was traced, a hang is not noticed"]
    if target.bare_dataset:
        notes.append("made by dlcheck from a dataset: batches of 8, no workers")
    facts = loader_facts(target.loader, None, notes)
    given = {key: spec[key] for key in GIVEN if spec.get(key)}
    watch.note(role=target.role, loader=facts, of=facts.get("dataset_length"), given=given)


@contextlib.contextmanager
def hooked(watch: Watch) -> Iterator[None]:
    """Put the hooks in place and take them away again."""
    places: list[tuple[Any, str]] = []
    with contextlib.suppress(ImportError, AttributeError):
        fetch = torch_private.fetch_module()
        places += [(fetch, "_MapDatasetFetcher"), (fetch, "_IterableDatasetFetcher")]
    with contextlib.suppress(ImportError, AttributeError):
        places.append((torch_private.multiprocessing_iterator(), "__init__"))
    if torch_private.stateful_iterator() is not None:
        places.append((torch_private.stateful_iterator(), "__init__"))
    before = [(owner, name, getattr(owner, name)) for owner, name in places]
    try:
        missing = install(watch)
        if missing:
            watch.scratch.write(obs={"settings": {"missing": missing}})
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


@contextlib.contextmanager
def undisturbed(target: Target) -> Iterator[None]:
    """Give back the loader's iterator and the state of every generator it can reach."""
    loader = target.loader
    inside = getattr(loader, "__dict__", {})
    found = replay.generators(
        dataset=target.dataset,
        collate=inside.get("collate_fn"),
        sampler=inside.get("sampler"),
        batch_sampler=inside.get("batch_sampler"),
        generator=inside.get("generator"),
    )
    state = replay.capture(found)
    live = inside.get("_iterator")
    persistent = "_iterator" in inside
    if persistent:
        loader._iterator = None  # noqa: SLF001
    try:
        yield
    finally:
        if persistent:
            # Dropping it ends its workers, which still carry the hooks.
            loader._iterator = live  # noqa: SLF001
        replay.restore(state, found)


def observations(folder: str) -> Iterator[dict[str, Any]]:
    """Yield what the processes of a check wrote, as Observations in JSON."""
    import json

    for path in sorted(Path(folder).glob("obs-*.jsonl")):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                part = json.loads(line)
                if "obs" in part:
                    yield part["obs"]
