"""What a pipeline did, as plain data: numbers and strings, no tensors, no judgement.

Every process of a run writes Observations of what it saw since its last line; the parent merges
them. `merge` does not depend on the order, so runs split over machines join the same way.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

SampleId = int | str
T = TypeVar("T")

EXAMPLES = 3
MOST_SHAPES = 48
MOST_STRUCTURES = 12
MOST_FAILURES = 24
MOST_FIELDS = 2_000


def sample_order(sample: SampleId) -> tuple[bool, int, str]:
    """Sort key that puts indexes before names, so that examples do not depend on arrival."""
    return (True, 0, sample) if isinstance(sample, str) else (False, sample, "")


@dataclass(frozen=True)
class Tally:
    """How often something was seen, with the first few samples that showed it."""

    n: int = 0
    at: tuple[SampleId, ...] = ()

    def merge(self, other: Tally) -> Tally:
        """Add the counts and keep the smallest examples of both."""
        at = sorted({*self.at, *other.at}, key=sample_order)[:EXAMPLES]
        return Tally(self.n + other.n, tuple(at))


def merge_tallies(a: Mapping[str, Tally], b: Mapping[str, Tally], most: int) -> dict[str, Tally]:
    """Join two counters; past `most` distinct keys the rest is counted under `...`."""
    joined = dict(a)
    for key, tally in b.items():
        name = key if key in joined or len(joined) < most else "..."
        joined[name] = joined.get(name, Tally()).merge(tally)
    return joined


@dataclass(frozen=True)
class Leaf:
    """One leaf of one sample. `shape` is None where the type has none."""

    type: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    def text(self) -> str:
        """Render as `float32 3x64x64`, `str`, `None`."""
        if self.shape is None:
            return self.type
        return f"{self.dtype or self.type} {shape_text(self.shape)}"


def shape_text(shape: Iterable[int]) -> str:
    """Render a shape: `3x64x64`, or `scalar` for the empty one."""
    return "x".join(str(size) for size in shape) or "scalar"


def shape_of(text: str) -> tuple[int, ...] | None:
    """Read what `shape_text` wrote; None for the bucket of further shapes."""
    if text == "scalar":
        return ()
    return None if text == "..." else tuple(int(size) for size in text.split("x"))


@dataclass(frozen=True)
class Field:
    """All that was seen of one field, over many samples (or many batches)."""

    types: dict[str, Tally] = field(default_factory=dict)
    dtypes: dict[str, Tally] = field(default_factory=dict)
    shapes: dict[str, Tally] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    nonfinite: Tally = Tally()
    grad: Tally = Tally()

    @property
    def n(self) -> int:
        """How many samples (or batches) had the field."""
        return sum(tally.n for tally in self.types.values())

    def merge(self, other: Field) -> Field:
        """Join what two processes saw of the field."""
        lows = [x for x in (self.low, other.low) if x is not None]
        highs = [x for x in (self.high, other.high) if x is not None]
        return Field(
            types=merge_tallies(self.types, other.types, MOST_SHAPES),
            dtypes=merge_tallies(self.dtypes, other.dtypes, MOST_SHAPES),
            shapes=merge_tallies(self.shapes, other.shapes, MOST_SHAPES),
            low=min(lows, default=None),
            high=max(highs, default=None),
            nonfinite=self.nonfinite.merge(other.nonfinite),
            grad=self.grad.merge(other.grad),
        )


@dataclass(frozen=True)
class Frame:
    """A line of a traceback. `user` is false for installed packages and the standard library."""

    file: str
    line: int
    function: str
    text: str = ""
    user: bool = False


@dataclass(frozen=True)
class SampleLeaves:
    """One sample of a batch that could not be joined: its fields, in order.

    Containers stand under their own path too, as Leaf("dict"), Leaf("tuple", shape=(2,)).
    """

    index: SampleId
    leaves: dict[str, Leaf]


@dataclass(frozen=True)
class Failure:
    """An exception, exit, crash or hang of the user's code.

    `phase` is where it happened: import, build, iter (making the iterator), sample, collate,
    batch (the loader itself), hook, exit (the process ended), signal, hang.
    `at` holds the samples that failed like this; `count` how many did.
    """

    phase: str
    exception: str = ""
    message: str = ""
    frames: tuple[Frame, ...] = ()
    at: tuple[SampleId, ...] = ()
    count: int = 1
    batch: tuple[SampleId, ...] = ()
    samples: tuple[SampleLeaves, ...] = ()
    worker: int | None = None
    epoch: int = 0
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Equal for failures that are the same one, met again."""
        last = self.frames[-1] if self.frames else None
        place = f"{last.file}:{last.line}" if last else ""
        words = "".join("#" if c.isdigit() else c for c in self.message[:60])
        return "|".join((self.phase, self.exception, place, self.place(), words))

    def place(self) -> str:
        """The innermost line of the user's own code, as `file:line`, or an empty string."""
        frame = self.user_frame
        return f"{frame.file}:{frame.line}" if frame else ""

    @property
    def user_frame(self) -> Frame | None:
        """The innermost frame of the user's own code."""
        return next((f for f in reversed(self.frames) if f.user), None)

    def merge(self, other: Failure) -> Failure:
        """Count the same failure once more; details are those of the earlier epoch."""
        first, second = sorted((self, other), key=lambda f: (f.epoch, sorted(map(str, f.at))))
        at = sorted({*self.at, *other.at}, key=sample_order)[: 4 * EXAMPLES]
        return dataclasses.replace(first, at=tuple(at), count=first.count + second.count)


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


@dataclass(frozen=True)
class State:
    """What an array, tensor or picture is at one point of a sample's way.

    `layout` names the axes: C, H, W, T (time or depth), N; empty when the evidence does not
    tell. `strides` (in bytes) only where one is negative. `low`, `high`, `mean` of all elements.
    """

    type: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    layout: str = ""
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    nonfinite: int = 0
    strides: tuple[int, ...] = ()
    scramble: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One change of an array on a sample's way.

    `file`, `line`, `text` are the user's line: for a stage inside a container (Compose) the line
    that called the container. `stage` is the class or function that did it, `parameters` its
    arguments in short, `container` and `position` its place in a Compose. `fields` are the fields
    of the finished sample that this array became, empty when it was dropped. `sources` are the
    steps (by number) that made what this one read. `source_text` is the statement inside the
    container or library, when the change did not happen on the user's line.
    """

    file: str
    line: int
    function: str
    text: str
    variable: str
    stage: str
    after: State
    before: State | None = None
    parameters: str = ""
    container: str = ""
    position: int | None = None
    fields: tuple[str, ...] = ()
    sources: tuple[int, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Opened:
    """A data file that was read for a sample, and the user's line that asked for it.

    `order` is the order of channels that the reader gives: RGB, BGR, GRAY or empty. `mode` is
    what the file itself holds (L, P, RGB, RGBA, ...), `shape` what the reader returned.
    """

    path: str
    by: str
    mode: str = ""
    order: str = ""
    shape: tuple[int, ...] | None = None
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class Journey:
    """One sample's way, line by line, as the probe traced it.

    `fields` are its finished fields. `returned` is the [file, line] that returned it. `failure`
    is set when the way ended in an exception, `failed_stage` and `failed_state` name the stage
    then at work and what it was given. `reproduced`: whether it came out as the drive saw it
    (None: nothing to compare). `colours`: per image field, the correlation of its channels with
    those of the file, {"rgb": r, "bgr": r}.
    """

    sample: SampleId
    steps: tuple[Step, ...] = ()
    fields: dict[str, State] = field(default_factory=dict)
    opened: tuple[Opened, ...] = ()
    returned: tuple[str | int, ...] = ()
    failure: Failure | None = None
    failed_stage: str = ""
    failed_parameters: str = ""
    failed_state: State | None = None
    reproduced: bool | None = None
    colours: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Split:
    """What was seen of one split (the only one is named with an empty string).

    `samples` counts the first epoch, `again` the later ones, `spread` what was drawn beyond them.
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

    def merge(self, other: Split) -> Split:
        """Join what two processes saw of the split."""
        fields = _merge(self.fields, other.fields, MOST_FIELDS)
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
            batch_fields=_merge(self.batch_fields, other.batch_fields, MOST_FIELDS),
            batch_sizes=merge_tallies(self.batch_sizes, other.batch_sizes, MOST_SHAPES),
            structures=_merge_structures(self.structures, other.structures),
            failures=_merge(self.failures, other.failures, MOST_FAILURES),
            batchnorm=self.batchnorm or other.batchnorm,
            journeys={**self.journeys, **other.journeys},
            given={**self.given, **other.given},
        )


def _merge(a: dict[str, Any], b: dict[str, Any], most: int) -> dict[str, Any]:
    joined = dict(a)
    for key, value in b.items():
        if key in joined:
            joined[key] = joined[key].merge(value)
        elif len(joined) < most:
            joined[key] = value
    return joined


def _merge_structures(a: dict[str, Structure], b: dict[str, Structure]) -> dict[str, Structure]:
    joined = dict(a)
    for key, value in b.items():
        if key in joined:
            joined[key] = Structure(joined[key].paths, joined[key].seen.merge(value.seen))
        elif len(joined) < MOST_STRUCTURES:
            joined[key] = value
    return joined


@dataclass(frozen=True)
class Observation:
    """A whole run. `cut` says why it ended before its plan was done; empty when it was."""

    splits: dict[str, Split] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    cut: str = ""

    def merge(self, other: Observation) -> Observation:
        """Join two Observations of one run."""
        splits = dict(self.splits)
        for name, split in other.splits.items():
            splits[name] = splits[name].merge(split) if name in splits else split
        return Observation(
            splits=splits,
            failures=_merge(self.failures, other.failures, MOST_FAILURES),
            versions={**self.versions, **other.versions},
            settings={**self.settings, **other.settings},
            cut=self.cut or other.cut,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain dicts and lists for `json`; defaults are left out."""
        return typing.cast("dict[str, Any]", _plain(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Observation:
        """Read what `to_json` wrote.

        Raises:
            TypeError: a key that this version does not know.
        """
        return _build(cls, data)


def failure_from_json(data: Mapping[str, Any]) -> Failure:
    """Read one Failure as a process wrote it."""
    return _build(Failure, data)


def plain(value: Any) -> Any:
    """Turn any of these dataclasses into plain dicts and lists; defaults are left out."""
    return _plain(value)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {
            spec.name: _plain(item)
            for spec in dataclasses.fields(value)
            if (item := getattr(value, spec.name)) != _default(spec)
        }
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _default(spec: dataclasses.Field[Any]) -> Any:
    if spec.default_factory is not dataclasses.MISSING:
        return spec.default_factory()
    return spec.default


_READERS: dict[type, dict[str, Any]] = {}


def _build(cls: type[T], data: Mapping[str, Any]) -> T:
    readers = _READERS.get(cls)
    if readers is None:
        hints = typing.get_type_hints(cls)
        readers = _READERS[cls] = {name: _reader(hint) for name, hint in hints.items()}
    unknown = set(data) - set(readers)
    if unknown:
        message = f"{cls.__name__} has no {', '.join(sorted(unknown))}"
        raise TypeError(message)
    return cls(**{name: readers[name](value) for name, value in data.items()})


def _reader(hint: Any) -> Any:
    """Return a function that turns plain JSON into the annotated type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return lambda value: _build(typing.cast("type[Any]", hint), value)
    if origin is dict:
        inner = _reader(args[1])
        return lambda value: {key: inner(item) for key, item in value.items()}
    if origin is tuple:
        inner = _reader(args[0]) if args[-1] is Ellipsis else (lambda item: item)
        return lambda value: tuple(inner(item) for item in value)
    classes = [arg for arg in args if dataclasses.is_dataclass(arg) or typing.get_origin(arg)]
    if classes:
        inner = _reader(classes[0])
        return lambda value: None if value is None else inner(value)
    return lambda value: value
