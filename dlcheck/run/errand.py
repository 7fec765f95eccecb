"""What the child does from its first line to its last: import, build, drive, say the end."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from dlcheck.run import contract, probe, refusal, replay, shared
from dlcheck.run.drive import Drive, Plan
from dlcheck.run.facts import dataset_facts, loader_facts
from dlcheck.run.failures import failure_of, keyed
from dlcheck.run.hooks import install, note_construction
from dlcheck.run.scratch import Scratch
from dlcheck.run.target import ConfigMistake, NoPipeline, Target, build
from dlcheck.run.watch import Watch, die_with_parent

GIVEN = ("fields", "expect", "model", "loss", "step", "full_length")
TORCH_PACKAGES = ("torch", "torchvision", "numpy")


def main(job_file: str) -> None:
    """Run a job; everything that is seen goes to the scratch folder."""
    job: dict[str, Any] = json.loads(Path(job_file).read_text(encoding="utf-8"))
    die_with_parent()
    if os.getppid() != job["parent"]:
        return
    os.dup2(2, 1)
    sys.argv[:] = [job["target"]]
    sys.path.insert(0, job["folder"])
    scratch = Scratch(job["scratch"])
    scratch.begin()
    watch = Watch(scratch)
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
    scratch.write(obs={"versions": versions(), "settings": {"missing": missing}})
    if job["seed"] is not None:
        replay.seed_all(job["seed"])
    targets: dict[str, Target] = {}
    names: dict[str, tuple[str, ...]] = {}
    specs: dict[str, dict[str, Any]] = {}
    for name, spec in job["splits"].items():
        made = built(name, spec, watch)
        targets |= made
        names |= dict.fromkeys(made, field_names(spec))
        specs |= dict.fromkeys(made, spec)
        for key in made:
            watch.split = key
            watch.note(given={k: spec[k] for k in GIVEN if spec.get(k) is not None})
    full = {key: spec["full_length"] for key, spec in specs.items() if spec.get("full_length")}
    scratch.write(obs={"settings": {"full_length": full} if full else {}})
    drives: dict[str, Drive] = {}
    if targets:
        shared.note_shared(watch, targets)
        reason = probe.start(targets, names, scratch)
        scratch.write(obs={"settings": {"probe": reason}})
    for name, target in targets.items():
        watch.split = name
        watch.names = names[name]
        watch.hooked = False
        scratch.write(doing="reading samples", split=name)
        budget = job["budget"] / len(targets)
        drives[name] = Drive(watch, target, Plan(budget, job["samples"], job["seed"] or 0))
        drives[name].run()
    contract.note_batchnorm(watch, drives, specs)
    refusal.note_refusal(watch, drives, specs)


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
