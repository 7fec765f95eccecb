"""What one training step would hold on a device, foreseen without one.

Model, loss and optimizer of the config run on fake tensors: nothing is computed and nothing is
held, but each block that torch would ask for is counted. A user's `step` never runs here.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlcheck.observation import Budget, plain
from dlcheck.observers.describe import Described
from dlcheck.run.batch import Parts, length, parts_of, required, resized
from dlcheck.run.failures import safe_text
from dlcheck.run.instantiate import ConfigMistake, instantiate, is_node
from dlcheck.run.ledger import Ledger, Peak, keeping
from dlcheck.run.replay import unchanged_random

MOST_REASON = 200
STEPPED = "the config gives a step, which is only ever really run: no device, no figure"
NO_LOSS = "no loss given: the sum of the outputs stands in"
NO_OPTIMIZER = "no optimizer given: none is counted (Adam keeps twice the parameters)"
PRECISION = "the precision is the model's own: autocast is not seen"


class NotForeseen(Exception):  # noqa: N818 - an outcome, written down as the reason
    """Nothing can be said; the argument says why."""


@dataclass
class Run:
    """A model on its way through fake steps."""

    model: Any
    loss: Any
    optimizer: Any
    parts: Parts
    seen: int
    ledger: Ledger
    assumed: list[str] = field(default_factory=lambda: [PRECISION])


def note_budget(
    watch: Any, drives: Mapping[str, Any], specs: Mapping[str, Mapping[str, Any]]
) -> None:
    """Foresee the step of each split that is trained on, and write it down."""
    for name, drive in drives.items():
        spec = specs[name]
        if not wanted(spec) or drive.target.role != "train" or not drive.leaves:
            continue
        watch.split = name
        watch.note(budget=plain(foresee(spec, drive.leaves, batch_size=drive.batch_size())))


def wanted(spec: Mapping[str, Any]) -> bool:
    """Tell whether the config says what a step is made of."""
    return spec.get("model") is not None or spec.get("step") is not None


def foresee(
    spec: Mapping[str, Any],
    leaves: Sequence[Described],
    *,
    batch_size: int | None = None,
    foreach: bool = True,
) -> Budget:
    """Run two steps on fake tensors; never raises.

    Args:
        spec: the config's model, loss and optimizer.
        leaves: those of a batch that was seen.
        batch_size: the loader's own, where the batch seen may be the last one.
        foreach: update all parameters at once, as optimizers do on an accelerator.
    """
    begun = time.monotonic()
    known: dict[str, Any] = {key: label(spec.get(key)) for key in ("model", "loss", "optimizer")}
    if spec.get("model") is None:
        return Budget(reason=STEPPED)
    seen = length(leaves)
    size = batch_size or seen
    known["batch"] = size
    reason = ""
    for device in ("meta", "cpu"):
        try:
            with warnings.catch_warnings(), unchanged_random():
                warnings.simplefilter("ignore")
                found = _foresee(spec, leaves, (seen, size), device, foreach=foreach)
        except NotForeseen as outcome:
            return Budget(**known, reason=str(outcome))
        except BaseException as error:  # noqa: BLE001 - the model is the user's, and may need more
            reason = reason or _why(error)
            continue
        return Budget(**known, seconds=round(time.monotonic() - begun, 2), **found)
    return Budget(**known, reason=reason)


def _foresee(
    spec: Mapping[str, Any],
    leaves: Sequence[Described],
    sizes: tuple[int, int],
    device: str,
    *,
    foreach: bool,
) -> dict[str, Any]:
    seen, size = sizes
    model = _model(spec["model"], device)
    parts = parts_of(leaves, model.forward)
    if parts is None:
        raise NotForeseen("the batch holds no array that a model could take")
    if not any(p.requires_grad for p in model.parameters()):
        raise NotForeseen("the model has nothing to train")
    ledger = Ledger()
    with keeping(ledger):
        make_fake(model, ledger)
        model.train()
        run = Run(model, _loss(spec.get("loss")), None, parts, seen, ledger)
        run.optimizer = _optimizer(spec.get("optimizer"), run, foreach=foreach)
        peaks = _step(run, size)
        fullest = max(peaks, key=lambda phase: peaks[phase].size)
        double = _step(run, 2 * size, update=False)
        found = ledger.parts(peaks[fullest].event)
    per_sample, fixed = _line(peaks, double, size)
    return {
        "peak": peaks[fullest].size,
        "moment": fullest,
        **found,
        "fixed": fixed,
        "per_sample": per_sample,
        "assumed": tuple(dict.fromkeys(run.assumed)),
    }


def _line(one: dict[str, Peak], two: dict[str, Peak], size: int) -> tuple[int, int]:
    """Bytes a sample, and those of no sample: through the peaks of forward and backward.

    The update needs the same whatever the batch, and is a floor of its own.
    """
    low, high = (max(p[phase].size for phase in ("forward", "backward")) for p in (one, two))
    per_sample = max(high - low, 0) // size
    return per_sample, max(low - per_sample * size, 0)


def _model(node: Any, device: str) -> Any:
    import torch

    with torch.device(device):
        model = instantiate(node, "model")
        if isinstance(model, type):
            model = model()
    if not isinstance(model, torch.nn.Module):
        raise NotForeseen(f"the model is a {type(model).__name__}, no Module")
    return model


def _loss(node: Any) -> Any:
    if node is None:
        return None
    loss = instantiate(node, "loss")
    return loss() if isinstance(loss, type) else loss


def _optimizer(node: Any, run: Run, *, foreach: bool) -> Any:
    """Make the optimizer and let it make its state, without a step of the model."""
    trained = [p for p in run.model.parameters() if p.requires_grad]
    if node is None:
        run.assumed.append(NO_OPTIMIZER)
        return None
    if is_node(node) and not node.get("_partial_") and "_obj_" not in node:
        optimizer = instantiate(node, "optimizer", params=trained)
    else:
        optimizer = instantiate(node, "optimizer")(trained)
    for group in getattr(optimizer, "param_groups", ()):
        if foreach and group.get("foreach", 0) is None and not group.get("fused"):
            group["foreach"] = True
    run.ledger.begin("state")
    for one in trained:
        one.grad = one.detach().clone()
    optimizer.step()
    for state in optimizer.state.values():
        for value in state.values():
            _mark(run.ledger, value, "optimizer_state")
    optimizer.zero_grad()
    return optimizer


def _mark(ledger: Ledger, value: Any, kind: str) -> None:
    if hasattr(value, "untyped_storage"):
        ledger.mark(value, kind)
    for one in value if isinstance(value, list | tuple) else ():
        _mark(ledger, one, kind)


def _step(run: Run, size: int, *, update: bool = True) -> dict[str, Peak]:
    """Run forward, backward and update for a batch of `size`; returns the peak of each."""
    ledger = run.ledger
    ledger.forget_peaks()
    ledger.begin("inputs")
    placed = [_array(run, leaf, size) for leaf in run.parts.placed]
    named = {name: _array(run, leaf, size) for name, leaf in run.parts.named.items()}
    targets = [_array(run, leaf, size) for leaf in run.parts.targets]
    ledger.begin("forward")
    loss = _scalar(run, run.model(*placed, **named), targets)
    ledger.mark_phase("forward", "activations")
    ledger.begin("backward")
    loss.backward()
    for one in run.model.parameters():
        if one.grad is not None:
            ledger.mark(one.grad, "gradients")
    ledger.begin("step")
    if run.optimizer is not None and update:
        run.optimizer.step()
    peaks = {phase: Peak(p.size, p.event) for phase, p in ledger.peaks.items()}
    run.model.zero_grad()
    return {phase: peaks[phase] for phase in ("forward", "backward", "step")}


def _array(run: Run, leaf: Described, size: int) -> Any:
    import torch

    dtype = getattr(torch, str(leaf.dtype), None)
    if not isinstance(dtype, torch.dtype):
        raise NotForeseen(f"the batch holds {leaf.dtype} arrays, which no device takes")
    made = torch.zeros(resized(leaf, run.seen, size), dtype=dtype)
    run.ledger.mark(made, "inputs")
    return made


def _scalar(run: Run, output: Any, targets: list[Any]) -> Any:
    """Give what backward starts from: the model's own loss, the config's, or a stand-in."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if own is not None:
        return own.sum()
    if run.loss is not None:
        wants = max(len(required(run.loss)) - 1, 1)
        try:
            return run.loss(output, *targets[:wants]).sum()
        except Exception as error:  # noqa: BLE001 - the contract's rules judge a loss that refuses
            text = " ".join(safe_text(error).split())[:80]
            run.assumed.append(f"the loss could not be run ({text}): the sum stands in")
    else:
        run.assumed.append(NO_LOSS)
    floats = [one for one in _tensors(output) if one.is_floating_point() and one.requires_grad]
    if not floats:
        raise NotForeseen("the model's output carries no gradient")
    return functools.reduce(lambda a, b: a + b, [one.float().sum() for one in floats])


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif hasattr(value, "is_floating_point"):
        yield value


def make_fake(model: Any, ledger: Ledger) -> None:
    """Put fake tensors in the place of parameters, buffers and what else modules hold.

    Shared ones stay shared. To be called inside the mode, which makes what torch makes fake.
    """
    import torch

    made: dict[int, Any] = {}

    def fake(old: Any, kind: str) -> Any:
        if id(old) not in made:
            empty = torch.empty_strided(old.size(), old.stride(), dtype=old.dtype, device="cpu")
            ledger.mark(empty, kind)
            trained = isinstance(old, torch.nn.Parameter)
            made[id(old)] = torch.nn.Parameter(empty, old.requires_grad) if trained else empty
        return made[id(old)]

    kept = []
    for module in model.modules():
        for kind in ("parameters", "buffers"):
            held = vars(module)[f"_{kind}"]
            for name, old in held.items():
                if old is not None:
                    kept.append(old)
                    held[name] = fake(old, kind)
        for name, old in vars(module).items():
            if type(old) is torch.Tensor:
                kept.append(old)
                vars(module)[name] = fake(old, "buffers")


def label(node: Any) -> str:
    """Name what a node makes: `resnet50`, `Adam`."""
    if isinstance(node, Mapping):
        node = node.get("_target_") or node.get("class_path") or node.get("_obj_") or ""
    return str(node or "").replace(":", ".").rpartition(".")[2]


def _why(error: BaseException) -> str:
    if isinstance(error, ConfigMistake):
        return f"the step could not be made: {error.message}"[:MOST_REASON]
    text = " ".join(safe_text(error).split())
    return f"the step could not be foreseen: {type(error).__name__}: {text}"[:MOST_REASON]
