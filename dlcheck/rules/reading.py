"""DLC1, the samples that cannot be made, and the channel counts that are often the cause."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlcheck.findings import ERROR, Finding, Where, rule
from dlcheck.observation import (
    EXAMPLES,
    Failure,
    Journey,
    Observation,
    Opened,
    SampleId,
    Split,
    State,
    Step,
    sample_order,
    shape_of,
)
from dlcheck.rules import ways
from dlcheck.rules.collate import SHAPE, minority
from dlcheck.rules.shapes import causes
from dlcheck.rules.words import base, joined, named, some

MOST_TEXT = 500
MOST_AT = 4 * EXAMPLES
PLANES = 3
FEWEST_PIXELS = 4
TRANSFORM_CALLS = {"__call__", "forward", "_call_impl", "_wrapped_call_impl", "apply"}
READERS = {"__getitem__", "__getitems__", "__iter__", "__next__"}
NOT_REPRODUCED = "not reproduced"

# What torch, numpy, PIL and cv2 say to an image of another channel count than they want.
_CHANNELS_HURT = re.compile(
    r"channel|broadcast|must match|don't match|does not match|dimension|axes|unpack|out of range"
    r"|out of bounds|too many indices|scn|same shape",
    re.IGNORECASE,
)
# A stage that minds the size has another reason to fail.
_SIZES_HURT = re.compile(r"\bcrop|larger|smaller|exceed|too small|too large", re.IGNORECASE)
_BROADCAST = re.compile(r"output with shape (\[.+?\]) doesn't match the broadcast shape (\[.+?\])")
_TENSOR_SIZES = re.compile(
    r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) "
    r"at non-singleton dimension 0"
)
_ARRAY_SHAPES = re.compile(r"could not be broadcast together with shapes \((.+?)\) \((\d+),\)")


@rule(
    "DLC102",
    severity=ERROR,
    needs="samples",
    title="Images of 1, 3 and 4 channels are mixed",
    why="A folder of pictures holds a few that are grey, have an alpha channel or a palette; they "
    "fail in Normalize or in the collate, whenever the sampler draws one.",
    fix="Bring every picture to one mode where it is loaded: Image.open(path).convert('RGB'), "
    "cv2.imread(path, cv2.IMREAD_COLOR), read_image(path, ImageReadMode.RGB).",
)
def channel_count_varies(obs: Observation) -> Iterator[Finding]:
    """Fire where a sample or a batch failed because channel counts differ between samples.

    Only 1, 3, 4 channels or no channel axis at all count: other numbers are multispectral.
    """
    for name, split in obs.splits.items():
        for failures in by_place(split.failures.values()):
            mix = _refused_channels(split, failures)
            if mix:
                yield _channels_finding(name, split, failures, mix)
    for name, split, cause, joining in causes(obs, SHAPE):
        kinds = {shape_of(kind) or (): ids for kind, ids in cause.kinds.items()}
        counts = channel_mix([*kinds, *ways.sample_shapes(split, cause.field)])
        if counts:
            odd = cause.kinds[minority(cause.kinds)][0]
            by_count: dict[int, list[SampleId]] = {}
            for shape, ids in kinds.items():
                by_count.setdefault(counts[shape], []).extend(ids)
            mix = _Mix(odd, by_count, cause.field)
            yield _channels_finding(name, split, joining, mix)


@rule(
    "DLC108",
    severity=ERROR,
    needs="samples",
    title="Some samples cannot be made",
    why="The exception ends the epoch as soon as the sampler draws such a sample, often hours into "
    "a run.",
    fix="Make the stage take what this sample gives it, or leave the sample out when the index is "
    "built.",
    yields_to=("negative-strides", "channel-count-varies"),
)
def transform_error(obs: Observation) -> Iterator[Finding]:
    """Fire where reading raised on some samples and not on others, or in a transform.

    What raises on every sample in __getitem__ itself is left to pipeline-error.
    """
    for name, split in obs.splits.items():
        read = split.samples or split.spread
        for failures in by_place(split.failures.values()):
            if read or any(map(_in_transform, failures)):
                yield _transform_finding(name, split, failures)


def by_place(failures: Iterable[Failure]) -> list[list[Failure]]:
    """Group sample failures by exception and line: one place is one fault, whatever the words."""
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        if failure.phase == "sample":
            groups.setdefault((failure.exception, failure.place()), []).append(failure)
    return list(groups.values())


@dataclass(frozen=True)
class _Mix:
    """Which samples have how many channels; `step` is where they first differ, if known."""

    odd: SampleId | None
    counts: Mapping[int, Sequence[SampleId]]
    field: str | None = None


def channel_mix(shapes: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], int]:
    """Map each shape to its channel count where they differ in that alone; else empty.

    Channels may be the first or the last axis, or there is none; images of a few pixels and
    counts other than 1, 3 and 4 are left alone.
    """
    every = list(dict.fromkeys(shapes))
    for axis in (0, -1):
        counts = {shape: _count(shape, axis) for shape in every}
        planes = {shape: _plane(shape, axis) for shape in every}
        known = [count for count in counts.values() if count is not None]
        ranks = {len(shape) for shape in every}
        varied = len(set(known)) > 1 or len(ranks) > 1
        one_plane = len(set(planes.values())) == 1 and min(planes[every[0]]) > FEWEST_PIXELS
        if len(known) == len(every) and varied and one_plane:
            return {shape: count for shape, count in counts.items() if count is not None}
    return {}


def _count(shape: tuple[int, ...], axis: int) -> int | None:
    if len(shape) == PLANES - 1:
        return 1
    fits = len(shape) == PLANES and shape[axis] in ways.CHANNEL_COUNTS
    return shape[axis] if fits else None


def _plane(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    if len(shape) != PLANES:
        return shape or (0,)
    return shape[1:] if axis == 0 else shape[:-1]


def _refused_channels(split: Split, failures: Sequence[Failure]) -> _Mix | None:
    """Tell failures on another channel count than the samples have that could be read."""
    ids = sorted({i for f in failures for i in f.at}, key=sample_order)
    if not (split.samples or split.spread) or not ids:
        return None
    if not all(map(_minds_channels, failures)):
        return None
    counted = _counted(split, failures, ids) or next(
        filter(None, (_quoted(f.message) for f in failures)), None
    )
    if counted is None or counted[0] == counted[1]:
        return None
    if not ways.CHANNEL_COUNTS.issuperset(counted):
        return None
    others = tuple(j.sample for j in ways.ways(split))
    return _Mix(ids[0], {counted[0]: ids, counted[1]: others})


def _minds_channels(failure: Failure) -> bool:
    text = failure.message
    return bool(_CHANNELS_HURT.search(text)) and not _SIZES_HURT.search(text)


def _counted(
    split: Split, failures: Sequence[Failure], ids: Sequence[SampleId]
) -> tuple[int, int] | None:
    """Compare what the failing stage was given with what other samples gave it."""
    way = _failed_way(split, failures, ids)
    if way is None or way.failed_state is None:
        return None
    given = way.failed_state
    usual = Counter(
        count
        for journey in ways.ways(split)
        if (state := _given(journey, way)) and (count := ways.channels(state)) is not None
    )
    count = ways.channels(given)
    return None if count is None or not usual else (count, usual.most_common(1)[0][0])


def _rank(state: State) -> int:
    return len(state.shape or ())


def _given(journey: Journey, failed: Journey) -> State | None:
    """Return what the stage at which another sample failed was given in this journey."""
    place = failed.failure.place() if failed.failure else ""
    for step in journey.steps:
        if step.before is None:
            continue
        same_stage = failed.failed_stage and step.stage == failed.failed_stage
        if same_stage or (not failed.failed_stage and f"{step.file}:{step.line}" == place):
            return step.before
    return None


def _quoted(message: str) -> tuple[int, int] | None:
    """Read (given, wanted) channels where torch or numpy name both; None where they do not."""
    found = _BROADCAST.search(message)
    if found:
        given, wanted = (tuple(map(int, re.findall(r"\d+", text))) for text in found.groups())
        return (given[0], wanted[0]) if len(given) > 1 and given[1:] == wanted[1:] else None
    found = _TENSOR_SIZES.search(message)
    if found:
        return int(found[1]), int(found[2])
    found = _ARRAY_SHAPES.search(message)
    if found:
        given = tuple(map(int, re.findall(r"\d+", found[1])))
        return (given[-1] if len(given) == PLANES else 1), int(found[2])
    return None


def _failed_way(
    split: Split, failures: Sequence[Failure], ids: Sequence[SampleId]
) -> Journey | None:
    """Return the journey that ended in the same exception as the drive's."""
    for sample in ids:
        way = ways.way_of(split, sample)
        if way and way.failure and way.failure.exception == failures[0].exception:
            return way
    return None


def _channels_finding(name: str, split: Split, failures: Sequence[Failure], mix: _Mix) -> Finding:
    way = ways.way_of(split, mix.odd) or _failed_way(split, failures, failures[0].at)
    usual = [j for j in ways.ways(split) if str(j.sample) != str(mix.odd)]
    opened = _odd_file(way, usual)
    step = _first_of_another_count(way, usual)
    frame = failures[0].user_frame
    file, line = _guilty(opened, step, way, failures[0], split)
    modes = Counter(one.mode for j in usual if (one := _same_file(j, way, opened)) and one.mode)
    evidence = {
        "channels": {str(count): len(ids) for count, ids in mix.counts.items()},
        "samples": {str(count): list(ids[:PLANES]) for count, ids in mix.counts.items()},
        "mode": opened.mode if opened else "",
        "other_modes": dict(modes),
        "failed_at": f"{frame.file}:{frame.line}" if frame else "",
        "error": failures[0].message[:MOST_TEXT],
        "failed": sum(f.count for f in failures),
        "read": split.samples + split.spread,
    }
    stage = ways.stage(step) if step and not (opened and opened.line) else None
    stage = stage or (way.failed_stage if way else "") or None
    path = opened.path if opened else None
    where = Where(name or None, mix.field, stage, mix.odd, file, line, path=path)
    message = f"{_counts_said(mix)}{_file_said(opened, modes)}; {_error_said(failures[0])}"
    return Finding(message, where, evidence, explains=frozenset(f.key for f in failures))


def _counts_said(mix: _Mix) -> str:
    counts = list(mix.counts)
    what = named(mix.field) if mix.field is not None else "an image"
    odd = next((c for c, ids in mix.counts.items() if mix.odd in ids), counts[0])
    rest = [count for count in counts if count != odd]
    others = joined(rest) or "a channel axis"
    word = "channel" if odd == 1 else "channels"
    return f"sample {mix.odd}: {what} has {odd} {word} where others have {others}"


def _file_said(opened: Opened | None, modes: Mapping[str, int]) -> str:
    if opened is None:
        return ""
    others = f", other files {joined(modes)}" if modes else ""
    mode = f" of mode {opened.mode}{others}" if opened.mode else ""
    return f", from {base(opened.path)}{mode}"


def _error_said(failure: Failure) -> str:
    lines = failure.message.strip().splitlines()
    return f"{failure.exception}: {lines[0][: MOST_TEXT // 2]}" if lines else failure.exception


def _odd_file(way: Journey | None, usual: Sequence[Journey]) -> Opened | None:
    """Pick the file whose mode or shape no other sample has; else the only one there is."""
    if way is None or not way.opened:
        return None
    for place, one in enumerate(way.opened):
        same = [j.opened[place] for j in usual if len(j.opened) > place]
        if same and one.mode and all(one.mode != other.mode for other in same):
            return one
    return way.opened[0] if len(way.opened) == 1 else way.opened[-1]


def _same_file(journey: Journey, way: Journey | None, opened: Opened | None) -> Opened | None:
    if way is None or opened is None:
        return None
    place = way.opened.index(opened)
    return journey.opened[place] if len(journey.opened) > place else None


def _first_of_another_count(way: Journey | None, usual: Sequence[Journey]) -> Step | None:
    """Find the first step that left another channel count than the same line left in others."""
    for step in way.steps if way else ():
        same = [s for j in usual for s in j.steps if ways.same_place(s, step)]
        counts = {ways.channels(s.after) for s in same} - {None}
        ranks = {_rank(s.after) for s in same}
        count = ways.channels(step.after)
        if same and ((counts and count not in {None, *counts}) or _rank(step.after) not in ranks):
            return step
    return None


def _guilty(
    opened: Opened | None, step: Step | None, way: Journey | None, failure: Failure, split: Split
) -> ways.Place:
    """Where to look: the line that loads, else the step, the return, the line that failed."""
    if opened and opened.line:
        return opened.file, opened.line
    if step:
        return step.file, step.line
    frame = failure.user_frame
    if failure.phase == "sample" and frame:
        return frame.file, frame.line
    file, line = ways.returned(way)
    loader = split.loader
    return (file, line) if line or not loader else (loader.file, loader.line)


def _in_transform(failure: Failure) -> bool:
    """Tell a failure below the dataset's own code, in a transform that it called."""
    frames = failure.frames
    reading = [i for i, f in enumerate(frames) if f.user and f.function in READERS]
    if not reading:
        return False
    reader, below = frames[reading[-1]], frames[reading[-1] + 1 :]
    named = any(word in reader.text for word in ("transform", "augment"))
    return bool(below) and (named or any(f.function in TRANSFORM_CALLS for f in below))


def _transform_finding(name: str, split: Split, failures: Sequence[Failure]) -> Finding:
    first, frame = failures[0], failures[0].user_frame
    ids = sorted({i for f in failures for i in f.at}, key=sample_order)
    read = split.samples + split.spread
    # A sample drawn twice fails twice; the list of samples is whole while it is short.
    count = len(ids) if len(ids) < MOST_AT else sum(f.count for f in failures)
    error = first.message.splitlines()[0][: MOST_TEXT // 2] if first.message.strip() else ""
    what = f"{first.exception}: {error}" if error else first.exception
    way = _failed_way(split, failures, ids)
    opened = way.opened[-1] if way and way.opened else None
    stage = ways.called(way.failed_stage, way.failed_parameters) if way else ""
    message = (
        f"{some(count, ids)} raised {what}{_given_said(stage, way)}; {read} others could be read"
    )
    where = Where(
        split=name or None,
        stage=stage or None,
        sample=(way.sample if way else ids[0]) if ids else None,
        file=frame.file if frame else None,
        line=frame.line if frame else None,
        worker=first.worker,
        path=opened.path if opened else None,
    )
    evidence: dict[str, Any] = {
        "exception": first.exception,
        "error": first.message[:MOST_TEXT],
        "samples": list(ids),
        "failed": count,
        "read": read,
        "function": frame.function if frame else "",
        "given": ways.looks(way.failed_state) if way and way.failed_state else "",
        "redrawn": _redrawn(split, ids),
        "traceback": [f"{f.file}:{f.line} in {f.function}" for f in first.frames if f.user],
    }
    return Finding(message, where, evidence, explains=frozenset(f.key for f in failures))


def _given_said(stage: str, way: Journey | None) -> str:
    if not stage:
        return ""
    given = f", which was given {ways.looks(way.failed_state)}" if way and way.failed_state else ""
    return f" in {stage}{given}"


def _redrawn(split: Split, ids: Sequence[SampleId]) -> str:
    """Say when the failed samples, drawn again, came out otherwise."""
    drawn = [split.journeys[str(i)] for i in ids if str(i) in split.journeys]
    return NOT_REPRODUCED if drawn and all(j.reproduced is False for j in drawn) else ""
