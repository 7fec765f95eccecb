"""A sample on its way from its file to the finished batch, as the probe traced it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlcheck.observation.failures import Failure
from dlcheck.observation.tallies import SampleId


@dataclass(frozen=True)
class State:
    """What an array, tensor or picture is at one point of a sample's way.

    `layout` names the axes: C, H, W, T (time or depth), N; empty when the evidence does not
    tell. `strides` (in bytes) only where one is negative. `low`, `high`, `mean`, `std` of all
    elements.
    `ids` are the values of an array that holds few different ones, in order; empty for others.
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
    ids: tuple[float, ...] = ()
    std: float | None = None


@dataclass(frozen=True)
class Step:
    """One change of an array on a sample's way.

    `file`, `line`, `text` are the user's line: for a stage inside a container (Compose) the line
    that called the container. `stage` is the class or function that did it, `parameters` its
    arguments in short, `container` and `position` its place in a Compose. `fields` are the fields
    of the finished sample that this array became, empty when it was dropped. `sources` are the
    steps (by number) that made what this one read. `source_text` is the statement inside the
    container or library, when the change did not happen on the user's line.
    Of the values, where the arrays before and after tell: `scale` and `offset` of a step that is
    after = scale * before + offset (one for all, or one a channel); `wraps` is the share of pixels
    that ran past 0 or 255 to the other end; `invented` is the share of pixels of a label map with
    an id that is not found near their place before.
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
    scale: tuple[float, ...] = ()
    offset: tuple[float, ...] = ()
    wraps: float = 0.0
    invented: float = 0.0


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
class Mix:
    """A row of a batch that the collate function mixed from two samples.

    `field` is the image in the batch, `weight` the share of the first of the two samples `of` in
    it; `how` is mixup (pixel by pixel) or cutmix (a part each). `target` is a target in the batch
    and `target_how` what it is: kept (labels as they were), soft (a vector a row). Of a soft one
    `target_weight` and `target_of` are what it was mixed from, `off` how far it is from what the
    image says, `total` its sum, `total_before` that of the samples' own. `carried`: the labels or
    the weight of the mixture stand elsewhere in the batch. `telling`: the two samples' labels
    differ.
    """

    field: str
    row: int
    how: str
    of: tuple[SampleId, ...]
    weight: float
    target: str = ""
    target_how: str = ""
    target_of: tuple[SampleId, ...] = ()
    target_weight: float | None = None
    off: float = 0.0
    total: float | None = None
    total_before: float | None = None
    carried: bool = False
    telling: bool = False


@dataclass(frozen=True)
class Journey:
    """One sample's way, line by line, as the probe traced it.

    `fields` are its finished fields. `returned` is the [file, line] that returned it. `failure`
    is set when the way ended in an exception, `failed_stage` and `failed_state` name the stage
    then at work and what it was given. `reproduced`: whether it came out as the drive saw it
    (None: nothing to compare). `colours`: per image field, the correlation of its channels with
    those of the file, {"rgb": r, "bgr": r}. `mixes`: of the journey of a batch, its mixed rows.
    `contents`: hashes of the finished arrays, to compare with those in Split.contents, and
    `digests` those of all their bytes.
    `steady`: drawn twice in a row it came out the same (None: not tried); `again` are the steps
    of the second time.
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
    mixes: tuple[Mix, ...] = ()
    contents: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    steady: bool | None = None
    again: tuple[Step, ...] = ()
