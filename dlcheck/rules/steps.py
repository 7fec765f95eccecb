"""DLC506, DLC507: what a training step does with graphs, gradients and optimizers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from dlcheck.findings import ERROR, WARNING, Finding, NotApplicable, Where, rule
from dlcheck.observation import Culprit, Line, Look, Observation, Optimizer, Split, Steps
from dlcheck.rules.words import base, number

FEWEST_LOOKS = 3
FEWEST_STEPS = 3
FEWEST_STALE = 2
NODES_A_STEP = 0.5
ACCUMULATED = 64
WHOLE_EPOCHS = 3
FEWEST_BATCHES = 24


def stepped(obs: Observation) -> Iterator[tuple[str, Split, Steps]]:
    """Yield the splits whose step was called for every batch.

    Raises:
        NotApplicable: there is none, or it could not be called.
    """
    known = [(name, split, split.steps) for name, split in obs.splits.items() if split.steps]
    if not known:
        message = "the config names no step, or it was not called for every batch (`leak` does)"
        raise NotApplicable(message)
    if all(steps.reason for _, _, steps in known):
        raise NotApplicable(known[0][2].reason)
    yield from ((name, split, steps) for name, split, steps in known if not steps.reason)


@rule(
    "DLC506",
    severity=ERROR,
    needs="run",
    title="Graphs of earlier steps are kept alive",
    why="A tensor with a history keeps the graph of its step, and every activation that the graph "
    "saved: memory grows with each batch until the device is full.",
    fix="Keep numbers, not tensors with a history: loss.item(), or tensor.detach(); compute "
    "metrics under torch.no_grad().",
)
def graph_retained(obs: Observation) -> Iterator[Finding]:
    """Fire where the nodes of living graphs grow in number from step to step.

    They are counted from all living tensors that have a grad_fn, on any device. Graphs that are
    let go again (losses summed over a few batches before one backward), and those in a bounded
    container, are left out.
    """
    for name, split, steps in stepped(obs):
        gain = piled_up(steps)
        if not gain:
            continue
        keeper = _keeper(split)
        if keeper is None or keeper.detail.get("bound") is None:
            yield _retained(name, steps, keeper, gain)


def piled_up(steps: Steps) -> float:
    """Return how many nodes each step adds; 0 where they do not pile up."""
    looks = steps.looks
    if len(looks) < FEWEST_LOOKS or not _rising(looks):
        return 0.0
    gain = (looks[-1].nodes - looks[0].nodes) / (looks[-1].call - looks[0].call)
    if not steps.backwards:
        # Losses that wait for one backward are no leak; each kept tensor by itself may be one.
        more = looks[-1].tensors - looks[0].tensors
        gain = gain if more >= looks[-1].call - looks[0].call else 0.0
    return gain if gain >= NODES_A_STEP else 0.0


def _rising(looks: tuple[Look, ...]) -> bool:
    pairs = list(itertools.pairwise(look.nodes for look in looks))
    return all(after >= before for before, after in pairs) and pairs[-1][1] > pairs[-1][0]


def _keeper(split: Split) -> Culprit | None:
    """Choose who keeps the graphs: with a name, and with a line, first."""
    found = [
        one for _, one in sorted(split.culprits.items())
        if one.resource == "graph" and one.attribute
    ]  # fmt: skip
    found.sort(key=lambda one: not (one.stored_line or one.line))
    return found[0] if found else None


def _retained(name: str, steps: Steps, keeper: Culprit | None, gain: float) -> Finding:
    last = steps.looks[-1]
    message = (
        f"graphs of earlier steps stay alive: {last.nodes:,} nodes after {last.call} steps, "
        f"{number(gain)} more with every step"
    )
    evidence: dict[str, Any] = {
        "nodes": [[look.call, look.nodes] for look in steps.looks],
        "tensors": [[look.call, look.tensors] for look in steps.looks],
        "nodes_per_step": round(gain, 2),
    }
    line = max(steps.lines, key=lambda one: one.count, default=None)
    file, at = (line.file, line.line) if line else (None, None)
    attribute = None
    if keeper is not None:
        owner = str(keeper.detail.get("class") or "")
        of = f" of {owner}" if owner and not keeper.attribute.startswith(owner) else ""
        kind = f" ({keeper.type})" if keeper.type else ""
        message += f"; `{keeper.attribute}`{kind}{of} keeps them"
        attribute = keeper.attribute
        evidence |= {"attribute": keeper.attribute, "type": keeper.type, "items": keeper.items}
        if keeper.stored_line or keeper.line:
            at = keeper.stored_line or keeper.line
            file = str(keeper.detail.get("stored_file") or keeper.file)
            text = keeper.stored_text or keeper.text
            evidence["line"] = text
            message += f" ({base(file)}:{at}  {text})"
    where = Where(name or None, file=file, line=at, attribute=attribute)
    return Finding(message, where, evidence)


@rule(
    "DLC507",
    severity=ERROR,
    needs="run",
    title="backward, optimizer step and zero_grad do not go together",
    why="Gradients that are never cleared add up over all batches; a backward without a step, or a "
    "step without a gradient, trains nothing. Neither raises an error.",
    fix="For each optimizer: zero_grad() before backward(), and step() after it; when gradients "
    "are accumulated, both once every k batches.",
)
def unpaired_step(obs: Observation) -> Iterator[Finding]:
    """Fire for an optimizer that steps on used gradients, or on none, or never steps.

    Gradients themselves are looked at, so that it does not matter how they are cleared.
    Accumulation over k batches, alternating optimizers and closures are healthy.
    """
    for name, split, steps in stepped(obs):
        for one in steps.optimizers.values():
            said = _judged(one, steps)
            if said:
                yield _unpaired(name, one, steps, said)
            elif _late(split, one, steps):
                said = f"{_called(one)} did not step once in {split.finished_epochs} whole epochs"
                said += f" of {steps.calls} batches together"
                yield dataclasses.replace(
                    _unpaired(name, one, steps, said), severity=WARNING,
                )  # fmt: skip


def _judged(one: Optimizer, steps: Steps) -> str:
    """Say what is wrong with an optimizer; empty where nothing is."""
    if one.stale >= FEWEST_STALE and 2 * one.stale >= one.steps - 1:
        return _stale(one)
    if one.steps >= FEWEST_STEPS and one.empty == one.steps:
        return _empty(one, steps)
    never = not one.steps and not one.later and not one.moved
    if not never or one.reached < FEWEST_STEPS or not one.felt:
        return ""
    if one.written and (steps.updates or steps.backwards < ACCUMULATED):
        return ""
    times = f"backward() gave it gradients {one.reached} times"
    return f"{_called(one)} never steps: {times}, step() is never called, and no parameter changed"


def _late(split: Split, one: Optimizer, steps: Steps) -> bool:
    """Tell accumulation that no epoch brings to its end, where the epochs are those of the job."""
    whole = split.finished_epochs >= WHOLE_EPOCHS and split.epoch_batches is None
    whole = whole and not split.given.get("full_length")
    never = not one.steps and not one.moved and not steps.updates
    return whole and never and one.reached >= FEWEST_BATCHES and bool(one.felt)


def _stale(one: Optimizer) -> str:
    grows = ""
    if len(one.norms) > 1 and one.norms[-1] > one.norms[0]:
        grows = f"; their norm went from {number(one.norms[0])} to {number(one.norms[-1])}"
    if not one.cleared:
        return (
            f"{_called(one)}: zero_grad() is never called, so its steps use the gradients of all "
            f"earlier batches again ({one.stale} of {one.steps} steps){grows}"
        )
    return (
        f"{_called(one)} uses gradients of earlier steps again in {one.stale} of {one.steps} "
        f"steps: they were cleared {one.cleared} times only{grows}"
    )


def _empty(one: Optimizer, steps: Steps) -> str:
    if one.felt:
        return (
            f"{_called(one)} steps {one.steps} times and never finds a gradient: they are cleared "
            "between backward() and step()"
        )
    if one.reached:
        return ""
    if not steps.backwards:
        return f"{_called(one)} steps {one.steps} times, and backward() is never called"
    return (
        f"{_called(one)} steps {one.steps} times without a gradient: no backward() reaches its "
        f"{one.parameters} parameters"
    )


def _called(one: Optimizer) -> str:
    return f"`{one.name}` ({one.cls})" if one.name else f"the optimizer {one.cls}"


def _unpaired(name: str, one: Optimizer, steps: Steps, said: str) -> Finding:
    line: Line | None = one.stepped or one.backward
    evidence: dict[str, Any] = {
        "optimizer": one.name,
        "class": one.cls,
        "batches": steps.calls,
        "backward": steps.backwards,
        "step": one.steps + one.later,
        "zero_grad": one.cleared,
    }
    if one.norms:
        evidence["gradient_norm"] = [one.norms[0], one.norms[-1]]
    for key, at in (("stepped_at", one.stepped), ("backward_at", one.backward)):
        if at is not None:
            evidence[key] = f"{base(at.file)}:{at.line}  {at.text}"
    where = Where(
        name or None, stage=line.function if line else None, file=line.file if line else None,
        line=line.line if line else None, attribute=one.name or None,
    )  # fmt: skip
    return Finding(said, where, evidence)
