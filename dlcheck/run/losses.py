"""Whether the config's loss takes what the model gives and the batch holds, on the meta device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dlcheck.observation import Trial, plain
from dlcheck.observers.describe import Described
from dlcheck.observers.meetings import Meetings, Parts
from dlcheck.run.batch import TARGETS, parts_of
from dlcheck.run.blame import blame
from dlcheck.run.failures import failure_of, keyed, safe_text
from dlcheck.run.instantiate import instantiate
from dlcheck.run.refusal import KINDS, OTHER, first_input
from dlcheck.run.replay import unchanged_random


def note_losses(
    watch: Any, drives: Mapping[str, Any], specs: Mapping[str, Mapping[str, Any]]
) -> None:
    """Try model and loss of each split that names both and has no step, and write what came."""
    for name, drive in drives.items():
        spec = specs[name]
        wanted = spec.get("model") is not None and spec.get("loss") is not None
        if not wanted or spec.get("step") is not None or not drive.leaves:
            continue
        watch.split = name
        trial, error = try_loss(spec, drive.leaves)
        if trial.failure and error is not None:
            watch.note(failures=keyed(failure_of(error, "step")))
        watch.note(trials=[plain(trial)])


def try_loss(
    spec: Mapping[str, Any], leaves: Sequence[Described]
) -> tuple[Trial, BaseException | None]:
    """Run model and loss on what has the batch's shapes and dtypes; never raises."""
    import torch

    try:
        with torch.device("meta"), unchanged_random():
            return _tried(spec, leaves)
    except BaseException as error:  # noqa: BLE001 - model and loss are the user's, and may need more
        text = " ".join(safe_text(error).split())
        return Trial(
            reason=f"the loss could not be tried: {type(error).__name__}: {text}"[:200]
        ), None


def _tried(
    spec: Mapping[str, Any], leaves: Sequence[Described]
) -> tuple[Trial, BaseException | None]:
    shaped = first_input(list(leaves))
    model, loss = (_made(spec, key) for key in ("model", "loss"))
    target = None if shaped is None else _target(leaves, model.forward)
    if shaped is None or target is None:
        return Trial(reason="the batch holds no array, or more than one, for the loss"), None
    model.train()
    output = model(_empty(shaped))
    if not hasattr(output, "requires_grad"):
        return Trial(reason=f"the model gives a {type(output).__name__}, no tensor"), None
    parts = Parts.of([shaped, target])
    meetings = Meetings(parts)
    given = _empty(target)
    try:
        with meetings.watching():
            loss(output, given)
    except KINDS as error:
        if OTHER.search(safe_text(error)):
            raise
        found = blame(error, parts)
        told = dataclasses.asdict(found) | {"field": target.path}
        failed = next(iter(keyed(failure_of(error, "step")))) if found.about else ""
        trial = Trial(failure=failed, meetings=tuple(meetings.found), **told)
        return trial, error if failed else None
    return Trial(meetings=tuple(meetings.found)), None


def _made(spec: Mapping[str, Any], key: str) -> Any:
    made = instantiate(spec[key], key)
    return made() if isinstance(made, type) else made


def _target(leaves: Sequence[Described], forward: Any) -> Described | None:
    """Choose what the loss is given: the only array left, or the one that is called a target."""
    parts = parts_of(leaves, forward)
    targets = parts.targets if parts else ()
    named = [one for one in targets if one.path.rpartition(".")[2].lower() in TARGETS]
    if len(targets) == 1 or len(named) == 1:
        return (named or list(targets))[0]
    return None


def _empty(leaf: Described) -> Any:
    import torch

    return torch.empty(tuple(leaf.shape or ()), dtype=getattr(torch, str(leaf.dtype)))
