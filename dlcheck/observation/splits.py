"""What was seen of one loader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dlcheck.observation.contents import Boxes, Contents
from dlcheck.observation.device import Budget, Device, Grad
from dlcheck.observation.failures import Failure
from dlcheck.observation.journeys import Journey, Step
from dlcheck.observation.memory import Culprit, Process
from dlcheck.observation.pictures import Picture
from dlcheck.observation.steps import Steps, Trial
from dlcheck.observation.tallies import MOST_SHAPES, Field, SampleId, Tally, merge_tallies

MOST_STRUCTURES = 12
MOST_FAILURES = 24
MOST_FIELDS = 2_000
MOST_PROCESSES = 256


@dataclass(frozen=True)
class Loader:
    """What the user's loader is, read once before it is iterated.

    `kind` is map, iterable or other (not torch's DataLoader). `line` is the line that made it.
    Lengths are None where len() is not defined.
    """

    cls: str = ""
    file: str | None = None
    line: int | None = None
    kind: str = "other"
    length: int | None = None
    batch_size: int | None = None
    drop_last: bool = False
    sampler: str | None = None
    batch_sampler: str | None = None
    collate: str | None = None
    default_collate: bool = False
    num_workers: int = 0
    context: str | None = None
    dataset: str = ""
    dataset_file: str | None = None
    dataset_line: int | None = None
    dataset_length: int | None = None
    empty_attributes: tuple[tuple[str, int | None], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Structure:
    """One nesting of containers and types that samples had: path -> type."""

    paths: dict[str, str]
    seen: Tally

    def merge(self, other: Structure) -> Structure:
        """Count the same nesting once more."""
        return Structure(self.paths, self.seen.merge(other.seen))


@dataclass(frozen=True)
class Repeat:
    """One sample of an evaluation split that was drawn `draws` times.

    `fields`: the arrays that came out otherwise, each with the `share` of its elements that
    differ and by how much at `most`. `step` is the first one at which two draws part.
    """

    sample: SampleId
    draws: int = 0
    fields: dict[str, dict[str, float]] = field(default_factory=dict)
    step: Step | None = None


@dataclass(frozen=True)
class Overwrite:
    """An attribute of a dataset that two splits share, set for one and then for the other.

    `by` and `victim` are the names that the user's code gives the two; `text` and `line` set it
    last, `first_text` and `first_line` before that. `held`: the dataset was seen to hold the last.
    """

    attribute: str
    by: str
    victim: str
    function: str
    file: str
    line: int
    text: str
    first_line: int
    first_text: str
    held: bool = False


@dataclass(frozen=True)
class ModelRun:
    """The config's model, given a batch of the split's shapes on the meta device.

    `layer` is the path and `kind` the class of the module that refused; `wanted` and `got` say
    what. `reason` says why nothing could be judged.
    """

    field: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    failure: Failure | None = None
    layer: str = ""
    kind: str = ""
    wanted: str = ""
    got: str = ""
    about: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Split:
    """What was seen of one split (the only one is named with an empty string).

    `samples` counts the first epoch, `again` the later ones, `spread` what was drawn beyond them.
    `processes` are what they held, by name: `main`, `w0` (a persistent worker), `e2w0` (worker 0
    of epoch 2); `epochs_wanted` epochs of at most `epoch_batches` batches were asked for.
    `grads` is what of the dataset requires a gradient, `device` what was held on an accelerator,
    `budget` what a step would need on one.
    `steps` is what the config's step did, `trials` the batches that it was tried on by `shapes`.
    `pictures` are there only for a report that shows them.
    `kinds` names the kind of each field of which the rules are sure enough (see rules/kinds.py).
    `given` is what the user's config says of the split: fields, expect, model, step, full_length.
    """

    role: str = "train"
    loader: Loader | None = None
    samples: int = 0
    again: int = 0
    batches: int = 0
    epochs: int = 0
    finished_epochs: int = 0
    spread: int = 0
    seconds: float = 0.0
    of: int | None = None
    fields: dict[str, Field] = field(default_factory=dict)
    batch_fields: dict[str, Field] = field(default_factory=dict)
    batch_sizes: dict[str, Tally] = field(default_factory=dict)
    structures: dict[str, Structure] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    batchnorm: Failure | None = None
    journeys: dict[str, Journey] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    repeats: dict[str, Repeat] = field(default_factory=dict)
    shared_with: tuple[str, ...] = ()
    overwritten: tuple[Overwrite, ...] = ()
    model_run: ModelRun | None = None
    contents: dict[str, Contents] = field(default_factory=dict)
    boxes: dict[str, Boxes] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    culprits: dict[str, Culprit] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    epochs_wanted: int = 0
    epoch_batches: int | None = None
    pictures: dict[str, Picture] = field(default_factory=dict)
    grads: dict[str, Grad] = field(default_factory=dict)
    device: Device | None = None
    budget: Budget | None = None
    steps: Steps | None = None
    trials: tuple[Trial, ...] = ()

    def merge(self, other: Split) -> Split:
        """Join what two processes saw of the split."""
        fields = merge_known(self.fields, other.fields, MOST_FIELDS)
        return Split(
            role=other.role if other.loader else self.role,
            loader=self.loader or other.loader,
            samples=self.samples + other.samples,
            again=self.again + other.again,
            batches=self.batches + other.batches,
            epochs=max(self.epochs, other.epochs),
            finished_epochs=max(self.finished_epochs, other.finished_epochs),
            spread=self.spread + other.spread,
            seconds=self.seconds + other.seconds,
            of=self.of if self.of is not None else other.of,
            fields=fields,
            batch_fields=merge_known(self.batch_fields, other.batch_fields, MOST_FIELDS),
            batch_sizes=merge_tallies(self.batch_sizes, other.batch_sizes, MOST_SHAPES),
            structures=merge_known(self.structures, other.structures, MOST_STRUCTURES),
            failures=merge_known(self.failures, other.failures, MOST_FAILURES),
            batchnorm=self.batchnorm or other.batchnorm,
            journeys={**self.journeys, **other.journeys},
            given={**self.given, **other.given},
            repeats={**self.repeats, **other.repeats},
            shared_with=self.shared_with or other.shared_with,
            overwritten=self.overwritten or other.overwritten,
            model_run=self.model_run or other.model_run,
            contents=merge_known(self.contents, other.contents, MOST_FIELDS),
            boxes=merge_known(self.boxes, other.boxes, MOST_FIELDS),
            processes=merge_known(self.processes, other.processes, MOST_PROCESSES),
            culprits={**self.culprits, **other.culprits},
            kinds={**self.kinds, **other.kinds},
            epochs_wanted=max(self.epochs_wanted, other.epochs_wanted),
            epoch_batches=self.epoch_batches or other.epoch_batches,
            pictures={**self.pictures, **other.pictures},
            grads={**self.grads, **other.grads},
            device=merge_one(self.device, other.device),
            budget=self.budget or other.budget,
            steps=merge_one(self.steps, other.steps),
            trials=self.trials or other.trials,
        )


def merge_one(a: Any, b: Any) -> Any:
    """Join two of what may be missing."""
    return a.merge(b) if a is not None and b is not None else a or b


def merge_known(a: dict[str, Any], b: dict[str, Any], most: int) -> dict[str, Any]:
    """Join by key, and keep the first `most` in the alphabet, whichever came first."""
    joined = dict(a)
    for key, value in b.items():
        joined[key] = joined[key].merge(value) if key in joined else value
    for key in sorted(joined)[most:] if len(joined) > most else ():
        del joined[key]
    return joined
