"""What the child does from its first line to its last: import, build, drive, say the end."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlcheck.observers.device import OnDevice
from dlcheck.run import (
    budget,
    contract,
    device,
    fresh,
    grads,
    limits,
    losses,
    probe,
    ranks,
    rebuilt,
    refusal,
    replay,
    shards,
    shared,
    stepping,
)
from dlcheck.run import step as steps
from dlcheck.run.drive import Drive, Plan
from dlcheck.run.facts import dataset_facts, loader_facts
from dlcheck.run.failures import failure_of, keyed
from dlcheck.run.hooks import install, note_construction
from dlcheck.run.scratch import Scratch
from dlcheck.run.target import ConfigMistake, NoPipeline, Target, build
from dlcheck.run.watch import Watch, die_with_parent

GIVEN = ("fields", "expect", "model", "loss", "step", "full_length")
SHAPES_SHARE = 0.4
FORESEES = ("leak", "gate")
TORCH_PACKAGES = ("torch", "torchvision", "numpy")


def main(job_file: str) -> None:
    """Run a job; everything that is seen goes to the scratch folder."""
    job: dict[str, Any] = json.loads(Path(job_file).read_text(encoding="utf-8"))
    beside = bool(job.get("probe"))
    if not beside:
        die_with_parent()
    if os.getppid() != job["parent"]:
        return
    if "target" not in job:
        ranks.join(job)
    os.dup2(2, 1)
    sys.argv[:] = [job["target"]]
    sys.path.insert(0, job["folder"])
    scratch = Scratch(job["scratch"])
    scratch.begin()
    watch = Watch(scratch)
    if beside:
        targets, names, recipes = fresh.built_again(job, field_names)
        probe.Probe(targets, names, scratch, recipes).serve()
        return
    try:
        errand(job, watch)
    except BaseException as error:  # noqa: BLE001 - ours, since all of the user's is caught below
        import traceback

        scratch.write(broken="".join(traceback.format_exception(error)))
    scratch.write(end=True)


def errand(job: dict[str, Any], watch: Watch) -> None:
    """Build each split and drive it."""
    scratch = watch.scratch
    scratch.write(doing="importing torch")
    try:
        import torch  # noqa: F401
    except ImportError as error:
        scratch.write(no_torch=f"{type(error).__name__}: {error}", python=sys.executable)
        return
    missing = install(watch)
    note_construction(watch)
    device.note_touches(watch)
    settings = {"missing": missing, "command": job.get("command", ""), "limits": limits.observed()}
    scratch.write(obs={"versions": versions(), "settings": settings})
    if job["seed"] is not None:
        replay.seed_all(job["seed"])
    targets: dict[str, Target] = {}
    names: dict[str, tuple[str, ...]] = {}
    specs: dict[str, dict[str, Any]] = {}
    recipes: dict[str, rebuilt.Recipe] = {}
    for name, spec in job["splits"].items():
        begun = time.monotonic()
        made = built(name, spec, watch)
        recipe = rebuilt.Recipe(name, spec, time.monotonic() - begun)
        recipes |= dict.fromkeys(made, recipe)
        targets |= made
        names |= dict.fromkeys(made, field_names(spec))
        specs |= dict.fromkeys(made, spec)
        for key in made:
            watch.split = key
            watch.note(given={k: spec[k] for k in GIVEN if spec.get(k) is not None})
    full = {key: spec["full_length"] for key, spec in specs.items() if spec.get("full_length")}
    scratch.write(obs={"settings": {"full_length": full} if full else {}})
    steps.share_out(targets, specs)
    first = not job.get("rank") or job["rank"][0] == 0
    # What is traced and tried once is traced by rank 0, for all.
    if targets and first:
        shared.note_shared(watch, targets)
        reason = probe.start(targets, names, scratch, recipes)
        scratch.write(obs={"settings": {"probe": reason}})
    drives = drives_of(job, watch, targets, names)
    if first:
        conclude(job.get("command", ""), watch, drives, specs)


def drives_of(
    job: dict[str, Any], watch: Watch, targets: dict[str, Target], names: dict[str, tuple[str, ...]]
) -> dict[str, Drive]:
    """Drive each split as far as the command needs."""
    drives: dict[str, Drive] = {}
    on_device = chosen_device(job, watch, targets)
    for name, target in targets.items():
        watch.split = name
        watch.names = names[name]
        watch.foreign = [id(t.dataset) for t in targets.values() if t.dataset is not target.dataset]
        watch.hooked = False
        watch.scratch.write(doing="reading samples", split=name)
        drives[name] = Drive(watch, target, plan_of(job, len(targets)))
        drives[name].names = names[name]
        follower = on_device()
        drives[name].device = follower
        if not job.get("rank") or shards.take_part(drives[name], *job["rank"]):
            driven(drives[name], job.get("command", ""))
        follower.finish()
    return drives


def conclude(
    command: str, watch: Watch, drives: dict[str, Drive], specs: dict[str, dict[str, Any]]
) -> None:
    """Try the config's model without data: what a step would hold, what it refuses."""
    if command in FORESEES:
        watch.scratch.write(doing="foreseeing what a step holds")
        budget.note_budget(watch, drives, specs)
    if command == "leak":
        return
    watch.scratch.write(doing="trying the step")
    stepping.note_trials(watch, drives)
    contract.note_batchnorm(watch, drives, specs)
    refusal.note_refusal(watch, drives, specs)
    losses.note_losses(watch, drives, specs)


def chosen_device(
    job: dict[str, Any], watch: Watch, targets: dict[str, Target]
) -> Callable[[], OnDevice]:
    """Find the device that was asked for and say so at once; returns what follows it."""
    asked = job.get("device", "")
    found, why = device.choose(asked if targets else "")
    if found is not None:
        about = found.facts()
        free, total = ((size or 0) / (1 << 30) for size in (about.free, about.total))
        said = f"{found.name}: {about.model}, {free:.1f} of {total:.1f} GiB free"
        watch.scratch.write(say=said)
    elif asked and why:
        watch.scratch.write(say=f"--device {asked}: {why}; the rest goes on")
    return lambda: device.follow(watch, asked, found, why)


def driven(drive: Drive, command: str) -> None:
    """Drive a split as far as the command needs; a gate goes on from where `shapes` ends."""
    if command == "leak":
        stepping.measure(drive)
        return
    budget = drive.plan.budget
    if command == "gate":
        drive.plan.budget = SHAPES_SHARE * budget
    drive.run()
    if command == "gate" and not drive.failed:
        plan = drive.plan
        plan.budget = (1 - SHAPES_SHARE) * budget
        if plan.samples is not None and plan.samples > 0:
            # Epochs of as many samples as were asked for.
            plan.samples, plan.epoch_batches = None, plan.epoch_batches or drive.batches
        if stepping.note_trials(drive.watch, {drive.watch.split: drive}):
            # What it refuses once it refuses in every epoch; the loader can still be measured.
            drive.target.step = None
        stepping.measure(drive, first=1)


def plan_of(job: dict[str, Any], splits: int) -> Plan:
    """Give each split its share of the budget."""
    return Plan(
        job["budget"] / splits, job["samples"], job["seed"] or 0,
        job.get("epochs", 0), job.get("epoch_batches"),
    )  # fmt: skip


def field_names(spec: dict[str, Any]) -> tuple[str, ...]:
    """Return the user's names for the items of a tuple sample."""
    fields = spec.get("fields")
    return tuple(map(str, fields)) if isinstance(fields, list) else ()


def built(name: str, spec: dict[str, Any], watch: Watch) -> dict[str, Target]:
    """Build one split; what goes wrong is written down."""
    watch.split = name
    watch.scratch.write(doing="building the loader", split=name)
    try:
        targets = build(name, spec)
    except ConfigMistake as mistake:
        where = {"split": name, "key": mistake.key}
        watch.scratch.write(mistake=mistake.message, hint=mistake.hint, **where)
        return {}
    except NoPipeline as refusal:
        watch.note(failures=keyed(failure_of(refusal, "target", frames=[])))
        return {}
    except BaseException as error:  # noqa: BLE001 - the user's failure is what we look for
        failure = failure_of(error, phase_of(error), detail=dataset_in(error))
        watch.note(failures=keyed(failure))
        return {}
    for key, target in targets.items():
        introduce(key, target, watch)
    return targets


def introduce(name: str, target: Target, watch: Watch) -> None:
    """Write down what the loader is before it is iterated."""
    notes = []
    if target.bare_dataset:
        notes.append("made by dlcheck from a dataset: batches of 8, no workers")
    live = vars(target.loader).get("_iterator") if hasattr(target.loader, "__dict__") else None
    if live is not None:
        target.loader._iterator = None  # noqa: SLF001
        notes.append("a live persistent iterator was dropped")
    facts = loader_facts(target.loader, watch.made_at.get(id(target.loader)), notes)
    watch.split = name
    watch.note(role=target.role, loader=facts, of=facts.get("dataset_length"))
    grads.note_grads(watch, target.dataset)


def phase_of(error: BaseException) -> str:
    """Return `import` when the innermost user frame is a module's top level, else `build`."""
    from dlcheck.run.failures import frames_of

    user = [frame for frame in frames_of(error.__traceback__) if frame["user"]]
    if isinstance(error, SyntaxError | ImportError) or (
        user and user[-1]["function"] == "<module>"
    ):
        return "import"
    return "build"


def dataset_in(error: BaseException) -> dict[str, Any]:
    """Describe the dataset that a failed DataLoader(...) call was given."""
    import traceback

    with contextlib.suppress(Exception):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            file = frame.f_code.co_filename
            if file.endswith("dataloader.py") and "dataset" in frame.f_locals:
                return dataset_facts(frame.f_locals["dataset"])
    return {}


def versions() -> dict[str, str]:
    """Name the interpreter and the packages that matter."""
    import platform

    found = {"python": platform.python_version()}
    for name in TORCH_PACKAGES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found
