"""What a loader and its step held on an accelerator, and what a step would need on one."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_READINGS = 512
MOST_ALLOCATIONS = 16
MOST_TOUCHES = 16


@dataclass(frozen=True)
class Reading:
    """Bytes on the device after one batch was moved and its step, if any, has run.

    `allocated` is what live tensors take, `reserved` what torch's caching allocator keeps, `peak`
    the most that was allocated since the reading before, `driver` what the driver counts as used
    on the whole device, by all processes. `batch` counts from the run's first; `stepped` tells
    whether a step took it.
    """

    epoch: int
    batch: int
    allocated: int = 0
    reserved: int = 0
    peak: int = 0
    driver: int | None = None
    stepped: bool = False


@dataclass(frozen=True)
class Allocation:
    """Live memory that one line of the user's asked for, as the memory history tells.

    `first` and `last` are its bytes at the two looks, `blocks` its live blocks at the last one;
    `frames` lead to it, outermost first: `train.py:12 fit`.
    """

    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""
    frames: tuple[str, ...] = ()
    first: int = 0
    last: int = 0
    blocks: int = 0


@dataclass(frozen=True)
class Touch:
    """The line with which a process first used the accelerator; `worker` None in the main one.

    `method` is how the worker was started: fork, spawn, forkserver.
    """

    worker: int | None = None
    method: str = ""
    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""


@dataclass(frozen=True)
class Grad:
    """What a dataset holds that requires a gradient: a tensor, or a module that is trained.

    `path` starts at the loader: `dataset.tensors[0]`. `line` is the only one of the user's code
    that asks for a gradient, read from the source; 0 when there are more or none.
    """

    path: str = ""
    type: str = ""
    shape: tuple[int, ...] = ()
    file: str = ""
    line: int = 0
    text: str = ""


@dataclass(frozen=True)
class Device:
    """The accelerator of a run, and what was read of it; `reason` says why there was none.

    `asked` is --device as given. `total` and `free` are the driver's figures before the first
    batch, `before` what it counted as used then by all processes. `moved` is the bytes of the
    largest batch that was moved.
    """

    asked: str = ""
    name: str = ""
    model: str = ""
    total: int | None = None
    free: int | None = None
    before: int | None = None
    moved: int = 0
    readings: tuple[Reading, ...] = ()
    allocations: dict[str, Allocation] = field(default_factory=dict)
    touches: dict[str, Touch] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    reason: str = ""

    @property
    def stepped(self) -> bool:
        """Whether a step ran."""
        return any(reading.stepped for reading in self.readings)

    def merge(self, other: Device) -> Device:
        """Join what was read at two times, or by two processes."""
        readings = {(r.epoch, r.batch): r for r in (*self.readings, *other.readings)}
        kept = [readings[key] for key in sorted(readings)]
        touches = {**self.touches, **other.touches}
        return Device(
            asked=self.asked or other.asked,
            name=self.name or other.name,
            model=self.model or other.model,
            total=self.total if self.total is not None else other.total,
            free=self.free if self.free is not None else other.free,
            before=self.before if self.before is not None else other.before,
            moved=max(self.moved, other.moved),
            readings=tuple(thinned(kept)),
            allocations=_largest({**self.allocations, **other.allocations}),
            touches={key: touches[key] for key in sorted(touches)[:MOST_TOUCHES]},
            missing=tuple(sorted({*self.missing, *other.missing})),
            reason=self.reason or other.reason,
        )


@dataclass(frozen=True)
class Budget:
    """What one training step would hold at its fullest moment, in bytes, by what it is for.

    Foreseen without a device: model, loss and optimizer ran on tensors that have sizes and no
    memory. `moment` is forward, backward or step. `fixed` and `per_sample` are the line through
    the peaks of two batch sizes. `assumed` says what was not known, `reason` why there is nothing.
    """

    model: str = ""
    loss: str = ""
    optimizer: str = ""
    batch: int = 0
    peak: int = 0
    moment: str = ""
    parameters: int = 0
    buffers: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    activations: int = 0
    inputs: int = 0
    temporaries: int = 0
    fixed: int = 0
    per_sample: int = 0
    seconds: float = 0.0
    assumed: tuple[str, ...] = ()
    reason: str = ""

    def parts(self) -> dict[str, int]:
        """Bytes at the peak by kind, in the order in which they are told."""
        return {
            "parameters": self.parameters,
            "buffers": self.buffers,
            "gradients": self.gradients,
            "optimizer state": self.optimizer_state,
            "activations": self.activations,
            "inputs": self.inputs,
            "temporaries": self.temporaries,
        }


def thinned(readings: list[Reading]) -> list[Reading]:
    """Keep the first and the last, and every second between them until few enough are left."""
    while len(readings) > MOST_READINGS:
        readings = [readings[0], *readings[2:-1:2], readings[-1]]
    return readings


def _largest(found: dict[str, Allocation]) -> dict[str, Allocation]:
    grown = sorted(found, key=lambda key: (found[key].first - found[key].last, key))
    return {key: found[key] for key in sorted(grown[:MOST_ALLOCATIONS])}
