"""How rules read journeys: the steps of one field, its axes, and what a stage is called."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlcheck.findings import NotApplicable, Unobserved
from dlcheck.observation import (
    EXAMPLES,
    Journey,
    Observation,
    Opened,
    SampleId,
    Split,
    State,
    Step,
    Tally,
    shape_of,
    shape_text,
)
from dlcheck.rules.words import base

Place = tuple[str | None, int | None]

COLLATED = "batch"
ALIKE = 1e-5
SPATIAL = 2
PLANES = 3
CHANNEL_COUNTS = frozenset({1, 3, 4})
MODES = {"1": 1, "L": 1, "P": 1, "I": 1, "F": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}


def ways(split: Split) -> list[Journey]:
    """Return the journeys of samples that were finished and are those that the drive saw."""
    return [
        journey
        for key, journey in split.journeys.items()
        if key != COLLATED and journey.failure is None and journey.reproduced is not False
    ]


def way_of(split: Split, sample: SampleId | None) -> Journey | None:
    """Return the journey of one sample, finished or not, unless it came out otherwise."""
    journey = split.journeys.get(str(sample))
    return None if journey is None or journey.reproduced is False else journey


def need_journeys(obs: Observation) -> None:
    """Tell why nothing can be judged where no sample was traced.

    Raises:
        Unobserved: the probe was asked and did not answer.
        NotApplicable: there was nothing to ask it for.
    """
    if any(ways(split) for split in obs.splits.values()):
        return
    reason = str(obs.settings.get("probe") or "")
    if reason:
        raise Unobserved(reason)
    raise NotApplicable("no sample was traced")


def chain(journey: Journey, field: str) -> list[Step]:
    """Return the steps that a finished field came through, in order."""
    return [step for step in journey.steps if field in step.fields]


def own_chain(journey: Journey, field: str) -> list[Step]:
    """Return the steps that a finished field itself came through, in order.

    `chain` also holds what was read on the same lines; here each step was given what the step
    before it made.
    """
    state = journey.fields.get(field)
    found: list[Step] = []
    for step in reversed(chain(journey, field)):
        if state is not None and _is_same(step.after, state):
            found.append(step)
            state = step.before
    return found[::-1]


def _is_same(one: State, other: State) -> bool:
    """Tell whether two states are of one array; figures may be missing before it was decoded."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    pairs = ((one.low, other.low), (one.high, other.high), (one.mean, other.mean))
    return all(a is None or b is None or abs(a - b) <= ALIKE * max(1.0, abs(a)) for a, b in pairs)


def traced_fields(split: Split) -> list[str]:
    """Return the array fields of any journey, in order."""
    return list(dict.fromkeys(field for journey in ways(split) for field in journey.fields))


def states(step: Step) -> Iterator[State]:
    """Yield what a step was given, where it is known, and what it made."""
    if step.before is not None:
        yield step.before
    yield step.after


def layout(split: Split, field: str) -> str:
    """Return the layout of the finished field on which all journeys that know it agree."""
    known = {j.fields[field].layout for j in ways(split) if field in j.fields} - {""}
    return known.pop() if len(known) == 1 else ""


def declared(split: Split, field: str) -> Mapping[str, Any]:
    """Return what the config's `fields:` say of a field; empty where they only name it."""
    fields = split.given.get("fields")
    said = fields.get(field) if isinstance(fields, Mapping) else None
    return said if isinstance(said, Mapping) else {}


def expected(split: Split, field: str) -> Mapping[str, Any]:
    """Return what the config's `expect:` says of a field, by its name or else by a pattern."""
    expect = split.given.get("expect")
    if not isinstance(expect, Mapping):
        return {}
    fitting = [field] if field in expect else [name for name in expect if fits(field, name)]
    said = next((expect[name] for name in fitting), None)
    return said if isinstance(said, Mapping) else {}


def fits(field: str, name: str) -> bool:
    """Tell whether a field's path is the one named, in which `*` stands for anything."""
    return field == name or ("*" in name and fnmatch.fnmatchcase(field, name))


def last_change(split: Split, field: str, what: str) -> tuple[Step | None, Journey | None]:
    """Find the last step that changed a field's shape, dtype, range or layout, and its journey.

    Axes in another order are no change of shape.
    """
    for journey in ways(split):
        steps = [step for step in chain(journey, field) if changes(step, what)]
        if field in journey.fields:
            return (steps[-1] if steps else None), journey
    return None, None


def changes(step: Step, what: str) -> bool:
    """Tell whether a step changed the shape (axes in any order), dtype, range or layout."""
    before, after = step.before, step.after
    if before is None:
        return True
    if what == "shape":
        return sorted(before.shape or ()) != sorted(after.shape or ())
    if what == "range":
        return (before.low, before.high) != (after.low, after.high)
    if what == "layout":
        return before.layout != after.layout
    return before.dtype != after.dtype


def distinct(split: Split, tally: Tally) -> int:
    """Return how many samples a tally speaks of: those read in two epochs were counted twice."""
    if len(tally.at) < EXAMPLES:
        return len(tally.at)
    once = split.samples + split.spread
    return max(EXAMPLES, round(tally.n * once / max(1, once + split.again)))


def sample_shapes(split: Split, field: str) -> list[tuple[int, ...]]:
    """Return every shape that samples had in a field."""
    seen = split.fields.get(field)
    shapes = [shape_of(text) for text in seen.shapes] if seen else []
    finished = [j.fields[field].shape for j in ways(split) if field in j.fields]
    return [shape for shape in dict.fromkeys([*shapes, *finished]) if shape is not None]


def batched_as_it_is(split: Split, field: str) -> bool:
    """Tell whether batches hold the field as the samples had it, or there is none to compare."""
    if not split.batch_fields:
        return True
    batches = split.batch_fields.get(field)
    shapes = [shape_of(text) for text in batches.shapes] if batches else []
    tails = {shape[1:] for shape in shapes if shape}
    return bool(tails & set(sample_shapes(split, field)))


def dtypes(split: Split, field: str) -> set[str]:
    """Return the dtypes of a field."""
    finished = {j.fields[field].dtype for j in ways(split) if field in j.fields}
    seen = split.fields.get(field)
    return {dtype for dtype in {*finished, *(seen.dtypes if seen else ())} if dtype}


def size(state: State) -> tuple[int, int] | None:
    """Return (height, width) of an image, mask or picture; None where that is not known."""
    shape = state.shape
    if shape is None or len(shape) < SPATIAL:
        return None
    if len(shape) == SPATIAL:
        return shape[0], shape[1]
    if len(state.layout) == len(shape) and "H" in state.layout and "W" in state.layout:
        return shape[state.layout.index("H")], shape[state.layout.index("W")]
    if len(shape) != PLANES:
        return None
    if shape[0] in CHANNEL_COUNTS and shape[2] not in CHANNEL_COUNTS:
        return shape[1], shape[2]
    return (shape[0], shape[1]) if shape[2] in CHANNEL_COUNTS > {shape[0]} else None


def channels(state: State) -> int | None:
    """Return how many channels an image has, 1 for two axes; None where that is not known."""
    shape = state.shape
    if shape is None:
        return None
    if len(shape) == SPATIAL:
        return MODES.get(state.dtype or "", 3 if _is_picture(state) else 1)
    if len(state.layout) == len(shape) and "C" in state.layout:
        return shape[state.layout.index("C")]
    if len(shape) != PLANES:
        return None
    ends = [shape[axis] for axis in (0, 2) if shape[axis] in CHANNEL_COUNTS]
    return ends[0] if len(ends) == 1 else None


def _is_picture(state: State) -> bool:
    return state.type.startswith("PIL")


def looks(state: State | None) -> str:
    """Render a state as `float32 3x64x64 CHW`."""
    if state is None:
        return "unknown"
    shape = "" if state.shape is None else shape_text(state.shape)
    return " ".join(part for part in (state.dtype or state.type, shape, state.layout) if part)


def stage(step: Step) -> str:
    """Render a stage with its arguments as `Resize(size=64)`."""
    return called(step.stage, step.parameters)


def called(name: str, parameters: str) -> str:
    return f"{name}({parameters})" if parameters and "(" not in name else name


def at(step: Step) -> str:
    """Render a step's line as ` at data.py:41`."""
    return f" at {base(step.file)}:{step.line}"


def returned(journey: Journey | None) -> Place:
    """Return file and line that returned a sample, (None, None) where they are not known."""
    if journey is None or len(journey.returned) < SPATIAL:
        return None, None
    return str(journey.returned[0]), int(journey.returned[1])


def source(split: Split) -> Place:
    """Return where the user's dataset stands, or the line that made the loader of a library's."""
    loader = split.loader
    if loader is None:
        return None, None
    file = (loader.dataset_file or "").replace("\\", "/")
    if file and not any(part in file for part in ("/site-packages/", "/dist-packages/")):
        return loader.dataset_file, loader.dataset_line
    return loader.file, loader.line


def step_facts(step: Step) -> dict[str, Any]:
    """Say of a step what a finding's evidence holds of it."""
    inside = step.container if step.position is None else f"{step.container} {step.position}"
    return {
        "stage": stage(step),
        "container": inside,
        "code": step.text.strip(),
        "before": looks(step.before),
        "after": looks(step.after),
    }


def reader(opened: Sequence[Opened], wanted: str = "") -> Opened | None:
    """Pick the file that a sample's image came from: the last one whose order is `wanted`."""
    fitting = [one for one in opened if not wanted or one.order == wanted]
    return fitting[-1] if fitting else None


def same_place(one: Step, other: Step) -> bool:
    """Tell steps of two journeys that are the same stage on the same line."""
    return (one.file, one.line, one.stage, one.position) == (
        other.file,
        other.line,
        other.stage,
        other.position,
    )
