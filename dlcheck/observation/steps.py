"""What the user's training step did with gradients, optimizers and graphs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

MOST_OPTIMIZERS = 16
MOST_LINES = 16
MOST_LOOKS = 64


@dataclass(frozen=True)
class Line:
    """A line of the user's that called something `count` times."""

    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""
    count: int = 0


@dataclass(frozen=True)
class Optimizer:
    """One optimizer, as its parameters' gradients showed it.

    `name` is what the user's code calls it. `steps` counts its steps, `later` those that came when
    gradients were no longer looked at; `stale` those that used
    gradients of an earlier step again, `empty` those that found none. `cleared` is how often its
    gradients were seen to be gone after a step, `reached` how many backwards changed them, and
    `felt` whether these left anything but zeros (counted to three).
    `norms` are the norms of the sampled gradients at some steps. `moved`: a parameter changed
    while it was watched. `stepped`: the line that steps; `backward`: the last that went before.
    `written`: the user's code holds a call of its step.
    """

    name: str = ""
    cls: str = ""
    parameters: int = 0
    steps: int = 0
    later: int = 0
    stale: int = 0
    empty: int = 0
    cleared: int = 0
    reached: int = 0
    felt: int = 0
    norms: tuple[float, ...] = ()
    moved: bool = False
    written: bool = False
    stepped: Line | None = None
    backward: Line | None = None


@dataclass(frozen=True)
class Look:
    """Tensors with a grad_fn that were alive after `call` steps, and the nodes of their graphs."""

    call: int
    tensors: int
    nodes: int


@dataclass(frozen=True)
class Steps:
    """The calls of a split's step. `reason` says why nothing can be judged."""

    calls: int = 0
    backwards: int = 0
    updates: int = 0
    optimizers: dict[str, Optimizer] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    looks: tuple[Look, ...] = ()
    reason: str = ""

    def merge(self, other: Steps) -> Steps:
        """Take what the later report of one drive says; `calls` tells which is later."""
        first, second = sorted((self, other), key=lambda one: (one.calls, repr(one)))
        looks = {look.call: look for look in (*first.looks, *second.looks)}
        known = {**first.optimizers, **second.optimizers}
        return dataclasses.replace(
            second,
            optimizers={key: known[key] for key in sorted(known)[:MOST_OPTIMIZERS]},
            looks=tuple(looks[call] for call in sorted(looks))[:MOST_LOOKS],
            reason=second.reason or first.reason,
        )


@dataclass(frozen=True)
class Meeting:
    """Two arrays of different shapes that met in the step, and what came of it.

    `function` is torch's name (mse_loss, cross_entropy, sub); `field` that of the batch which one
    of them is, where it is known. `made` is the shape that broadcasting gives; empty if refused.
    `of` says which of the two is the target.
    """

    function: str
    prediction: tuple[int, ...] = ()
    target: tuple[int, ...] = ()
    prediction_dtype: str = ""
    target_dtype: str = ""
    made: tuple[int, ...] = ()
    field: str | None = None
    at: Line | None = None


@dataclass(frozen=True)
class Trial:
    """The step (or the config's model and loss) given one batch of the split.

    `batch` is which: first or last. Of a refusal `failure` is the key among the split's failures,
    `layer`, `kind`, `wanted`, `got` and `about` as in ModelRun, `loss` the loss that refused,
    `field` the part of the batch that was refused, `shape` and `dtype` as it came there, `other`
    the shape of the prediction that a loss was given with it.
    """

    batch: str = "first"
    failure: str = ""
    layer: str = ""
    kind: str = ""
    wanted: str = ""
    got: str = ""
    about: str = ""
    loss: str = ""
    field: str | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    other: tuple[int, ...] = ()
    meetings: tuple[Meeting, ...] = ()
    reason: str = ""
