"""DLC2: which axis holds the channels, and whether pixels still lie where they lay."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dlcheck.findings import ERROR, WARNING, Finding, NotApplicable, Where, rule
from dlcheck.observation import Journey, Observation, Split, State, Step, shape_text
from dlcheck.rules import ways
from dlcheck.rules.words import bare, joined, named

PLANES = 3
TINY = 4
CHANNELS_LAST = "HWC"
# Packages whose models take channels first, whatever their input size.
CHANNELS_FIRST_MODELS = ("torchvision.", "timm.", "segmentation_models_pytorch.", "monai.")
# One line that moves the last axis to the front and turns the other two round as well.
TURNED_ROUND = re.compile(
    r"\.T\b(?!\w)|\.transpose\(\s*\)|(?:permute|transpose)\(\s*[([]?\s*2\s*,\s*1\s*,\s*0\s*[])]?\s*\)"
    r"|np\.transpose\([^,()]*(?:,\s*[([]2\s*,\s*1\s*,\s*0[])])?\s*\)"
)


@rule(
    "DLC201",
    severity=ERROR,
    needs="batches",
    title="Image tensor is H,W,C where C,H,W is expected",
    why="Convolutions read axis 1 as channels, so they mix rows instead of colours; nothing fails "
    "as long as the sizes happen to fit.",
    fix="Call .permute(2, 0, 1), not view or reshape, where the array becomes a tensor (or use "
    "ToTensor, ToTensorV2, ToImage); if channels come last by design, declare "
    "`fields: {image: {layout: HWC}}`.",
    yields_to=("layout-flip", "reshape-scramble"),
)
def hwc_image(obs: Observation) -> Iterator[Finding]:
    """Fire where an image batch is B,H,W,C.

    An error where `expect`, `fields` or a model of a known library refutes it, else a warning.
    Silent on uint8 batches when a `step` is given, which may permute on the device.
    """
    findings = [
        finding
        for name, split in obs.splits.items()
        for field in dict.fromkeys([*split.fields, *ways.traced_fields(split)])
        if (finding := _hwc_finding(name, split, field))
    ]
    if not findings:
        ways.need_journeys(obs)
        _need_images(obs)
    yield from findings


@rule(
    "DLC202",
    severity=ERROR,
    needs="batches",
    title="A stage moves the channel axis and nothing moves it back",
    why="np.rot90, transpose and ToTensor count axes and do not know which one holds the channels; "
    "on square images no size gives the mistake away.",
    fix="Name the spatial axes (np.rot90(x, axes=(1, 2)), torch.rot90(x, dims=(-2, -1))), permute "
    "back after a stage that wants H,W,C, and leave out ToTensor for arrays stored as C,H,W.",
    yields_to=("reshape-scramble",),
)
def layout_flip(obs: Observation) -> Iterator[Finding]:
    """Fire where a step leads from C,H,W to H,W,C or puts the channels between the other axes.

    H,W,C to C,H,W is the healthy way, and a flip that is turned back before the end is harmless.
    """
    findings = [
        finding
        for name, split in obs.splits.items()
        for field in ways.traced_fields(split)
        if (finding := _flip_finding(name, split, field))
    ]
    if not findings:
        ways.need_journeys(obs)
        _need_images(obs)
    yield from findings


@rule(
    "DLC203",
    severity=ERROR,
    needs="batches",
    title="Pixels are scrambled by view or reshape in place of permute",
    why="view and reshape keep the order of the numbers and only cut them anew, so each channel "
    "becomes a mixture of all; the shape is as declared and nothing fails.",
    fix="Use permute (torch) or transpose (numpy) with the order of the axes, (2, 0, 1) for H,W,C "
    "to C,H,W.",
)
def reshape_scramble(obs: Observation) -> Iterator[Finding]:
    """Fire at the step after which neighbours along an axis lie a whole pixel's channels apart."""
    findings = [
        finding
        for name, split in obs.splits.items()
        for field in ways.traced_fields(split)
        if (finding := _scramble_finding(name, split, field))
    ]
    if not findings:
        ways.need_journeys(obs)
    yield from findings


def _need_images(obs: Observation) -> None:
    """Say so where no finished field is known to have channels."""
    for split in obs.splits.values():
        if any("C" in ways.layout(split, field) for field in ways.traced_fields(split)):
            return
    raise NotApplicable("no field is known to be an image with channels")


def _hwc_finding(name: str, split: Split, field: str) -> Finding | None:
    shapes = ways.sample_shapes(split, field)
    known = ways.layout(split, field)
    refuted = _refuted(split, field, shapes, known)
    if known != CHANNELS_LAST and not (refuted and not known):
        return None
    if not _may_be_hwc(split, field, shapes, refuted) or _by_design(split, field, shapes, known):
        return None
    journey, step = _becomes_tensor(split, field)
    file, line = (step.file, step.line) if step else ways.returned(journey)
    if line is None and split.loader:
        file, line = split.loader.file, split.loader.line
    batches = split.batch_fields.get(field)
    evidence = {
        "shapes": [shape_text(shape) for shape in shapes[:PLANES]],
        "batch": next(iter(batches.shapes), "") if batches else "",
        "layout": known or "unknown",
        "refuted_by": refuted,
        **(ways.step_facts(step) if step else {}),
    }
    where = Where(name or None, field, ways.stage(step) if step else None, file=file, line=line)
    tail = f"; {refuted}" if refuted else ", and nothing is seen to permute it"
    batch = f" ({evidence['batch']} as a batch)" if evidence["batch"] else ""
    message = f"{named(field)} is H,W,C: {shape_text(shapes[0])} a sample{batch}{tail}"
    return Finding(message, where, evidence, severity=ERROR if refuted else WARNING)


def _may_be_hwc(split: Split, field: str, shapes: list[tuple[int, ...]], refuted: str) -> bool:
    """Tell an image that could be H,W,C from volumes, masks, patches of a few pixels."""
    if not shapes or any(len(shape) != PLANES for shape in shapes):
        return False
    if not all(dtype == "uint8" or "float" in dtype for dtype in ways.dtypes(split, field)):
        return False
    tiny = any(min(shape[:2]) <= TINY for shape in shapes)
    return ways.batched_as_it_is(split, field) and (bool(refuted) or not tiny)


def _refuted(split: Split, field: str, shapes: list[tuple[int, ...]], known: str) -> str:
    """Say who contradicts H,W,C; empty when nobody is seen to."""
    expected = ways.expected(split, field)
    wanted = expected.get("shape")
    if isinstance(wanted, list | tuple) and len(wanted) == PLANES and shapes:
        turned = (wanted[1], wanted[2], wanted[0])
        other = wanted[0] not in wanted[1:]
        if other and all(_fits(shape, turned) for shape in shapes):
            return f"expect says shape {joined(wanted)}"
    if known != CHANNELS_LAST:
        return ""
    for source, said in (("expect", expected), ("fields", ways.declared(split, field))):
        order = str(said.get("layout", "")).upper()
        if order.startswith("C"):
            return f"{source} says layout {order}"
    model = split.given.get("model")
    target = str(model.get("_target_", "")) if isinstance(model, Mapping) else ""
    if target.startswith(CHANNELS_FIRST_MODELS) and not split.given.get("step"):
        return f"{bare(target)} takes channels first"
    return ""


def _fits(shape: tuple[int, ...], wanted: tuple[Any, ...]) -> bool:
    """Compare with a declared shape, in which a size may be left open."""
    same_axes = len(shape) == len(wanted)
    return same_axes and all(w in {s, None, -1} for s, w in zip(shape, wanted, strict=True))


def _by_design(split: Split, field: str, shapes: list[tuple[int, ...]], known: str) -> bool:
    """Tell channels that come last because the config says so, or the step may yet move them."""
    for said in (ways.declared(split, field), ways.expected(split, field)):
        if known and str(said.get("layout", "")).upper() == known:
            return True
    wanted = ways.expected(split, field).get("shape")
    if isinstance(wanted, list | tuple) and all(_fits(shape, tuple(wanted)) for shape in shapes):
        return True
    return bool(split.given.get("step")) and ways.dtypes(split, field) == {"uint8"}


def _becomes_tensor(split: Split, field: str) -> tuple[Journey | None, Step | None]:
    """Find the step that made a tensor of an array, where a permute is missing; else the last."""
    for journey in ways.ways(split):
        steps = ways.chain(journey, field)
        made = [s for s in steps if not _is_array(s.after)]
        made = [s for s in made[:1] if s.before is None or _is_array(s.before)]
        if field in journey.fields:
            return journey, next(iter([*made[-1:], *steps[-1:]]), None)
    return None, None


def _is_array(state: State) -> bool:
    return state.type in {"ndarray", "memmap"} or state.type.startswith("PIL")


@dataclass(frozen=True)
class _Turn:
    """A step that moved the channels, in how many of the journeys, and what became of it."""

    journey: Journey
    step: Step
    count: int
    final: State
    swapped: bool = False


def _flip_finding(name: str, split: Split, field: str) -> Finding | None:
    turn = _turn(split, field)
    if turn is None or not ways.batched_as_it_is(split, field):
        return None
    if _by_design(split, field, ways.sample_shapes(split, field), turn.final.layout):
        return None
    step, before = turn.step, turn.step.before or State("unknown")
    total = sum(field in journey.fields for journey in ways.ways(split))
    evidence = {
        **ways.step_facts(step),
        "finished": ways.looks(turn.final),
        "traced": total,
        "flipped": turn.count,
    }
    where = Where(
        name or None, field, ways.stage(step), turn.journey.sample, step.file, step.line
    )  # fmt: skip
    message = (
        f"{ways.stage(step)} turns {named(field)} from {_axes(before)} into "
        f"{_axes(step.after, swapped=turn.swapped)}, and nothing turns it back: "
        f"{_what_became(turn)}"
    )
    refuted = not turn.swapped or _refuted_size(split, field, turn.final)
    return Finding(message, where, evidence, severity=ERROR if refuted else WARNING)


def _turn(split: Split, field: str) -> _Turn | None:
    """Find the first step that moved the channels for good; None when there is none."""
    found: list[tuple[Journey, Step, bool]] = []
    for journey in ways.ways(split):
        steps = ways.chain(journey, field)
        final = journey.fields.get(field)
        if final is None:
            continue
        flips = [s for s in steps if s.before and _is_flip(s.before.layout, s.after.layout)]
        swaps = [] if flips else _swaps(split, field, journey)
        if flips and not _turned_back(flips[-1], steps, final):
            found.append((journey, _last_run(flips, steps), False))
        elif len(swaps) % 2:
            found.append((journey, swaps[-1], True))
    if not found:
        return None
    journey, step, swapped = found[0]
    return _Turn(journey, step, len(found), journey.fields[field], swapped)


def _last_run(flips: list[Step], steps: list[Step]) -> Step:
    """Return the first flip after which the channels never came first again."""
    for flip in flips:
        later = steps[steps.index(flip) + 1 :]
        if not any(_channels_first(step.after.layout) for step in later):
            return flip
    return flips[-1]


def _is_flip(before: str, after: str) -> bool:
    if sorted(before) != sorted(after) or "C" not in before:
        return False
    if _channels_first(before):
        return not _channels_first(after)
    return _between(after) and not _between(before)


def _channels_first(layout: str) -> bool:
    """Tell C,H,W (and T,C,H,W, C,T,H,W) from every other order."""
    planes = [layout.find(axis) for axis in "HW"]
    return "C" in layout and min(planes) > layout.index("C")


def _between(layout: str) -> bool:
    planes = sorted(layout.find(axis) for axis in "HW")
    return "C" in layout and planes[0] < layout.index("C") < planes[1]


def _turned_back(flip: Step, steps: list[Step], final: State) -> bool:
    """Tell whether the finished field, or the last that is known of it, has its channels first."""
    known = [step.after for step in steps[steps.index(flip) :]]
    last = next((state for state in [final, *reversed(known)] if state.layout), final)
    if last is final or final.shape is None or last.shape is None:
        return _channels_first(last.layout)
    channel = last.layout.index("C") if "C" in last.layout else 0
    same = len(final.shape) == len(last.shape) and final.shape[channel] == last.shape[channel]
    return _channels_first(last.layout) or not same


def _swaps(split: Split, field: str, journey: Journey) -> list[Step]:
    """Find lines such as `.T` that give C,W,H; none where another field is turned likewise."""
    swaps = [step for step in ways.chain(journey, field) if _is_swap(step)]
    others = [other for other in journey.fields if other != field]
    pairs = any(ways.size(journey.fields[o]) == ways.size(journey.fields[field]) for o in others)
    turned = any(_is_swap(s) or TURNED_ROUND.search(s.text) for o in others
                 for s in ways.chain(journey, o))  # fmt: skip
    return [] if pairs or turned or ways.declared(split, field).get("layout") == "CWH" else swaps


def _is_swap(step: Step) -> bool:
    """Tell H,W,C to C,W,H, where H and W differ, by the sizes and the code alone."""
    before, after = step.before, step.after
    if before is None or before.layout != CHANNELS_LAST or after.layout != "CHW":
        return False
    if before.shape is None or after.shape != before.shape[::-1]:
        return False
    return before.shape[0] != before.shape[1] and bool(TURNED_ROUND.search(step.text))


def _refuted_size(split: Split, field: str, final: State) -> bool:
    wanted = ways.expected(split, field).get("shape")
    known = isinstance(wanted, list | tuple) and final.shape is not None
    return known and not _fits(final.shape or (), tuple(wanted or ()))


def _axes(state: State, *, swapped: bool = False) -> str:
    order = "CWH" if swapped else state.layout
    return f"{','.join(order)} ({shape_text(state.shape or ())})"


def _what_became(turn: _Turn) -> str:
    if turn.swapped:
        return "height and width are exchanged"
    layout = turn.final.layout or turn.step.after.layout
    return f"C is now axis {layout.index('C')}" if "C" in layout else "the channels lie elsewhere"


def _scramble_finding(name: str, split: Split, field: str) -> Finding | None:
    found = [
        (journey, step)
        for journey in ways.ways(split)
        if not _healed(journey.fields.get(field))
        for step in ways.chain(journey, field)
        if _is_scramble(step)
    ]
    if not found:
        return None
    journey, step = found[0]
    lags = dict(step.after.scramble)
    evidence = {
        **ways.step_facts(step),
        "lags": lags,
        "samples": list(dict.fromkeys(j.sample for j, _ in found))[:PLANES],
    }
    where = Where(
        name or None, field, ways.stage(step), journey.sample, step.file, step.line
    )  # fmt: skip
    figures = joined(f"{key} {value:.3g}" for key, value in lags.items())
    message = (
        f"{ways.stage(step)} cuts {named(field)} anew, from {ways.looks(step.before)} to "
        f"{shape_text(step.after.shape or ())}, without moving a pixel ({figures})"
    )
    return Finding(message, where, evidence)


def _is_scramble(step: Step) -> bool:
    before = step.before
    if not step.after.scramble or (before is not None and before.scramble):
        return False
    if before is None or before.shape is None or step.after.shape is None:
        return True
    return math.prod(before.shape) == math.prod(step.after.shape)


def _healed(final: State | None) -> bool:
    return final is None or (bool(final.layout) and not final.scramble)
