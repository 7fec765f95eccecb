"""DLC309: boxes that are upside down, empty, outside their image or in another format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dlcheck.findings import ERROR, WARNING, Finding, NotApplicable, Severity, Where, rule
from dlcheck.observation import Boxes, Journey, Observation, Split, Step
from dlcheck.rules import ways
from dlcheck.rules.kinds import kind
from dlcheck.rules.words import joined, named, some

FORMATS = {
    "xyxy": "xyxy", "pascal_voc": "xyxy", "xywh": "xywh", "coco": "xywh", "cxcywh": "cxcywh",
}  # fmt: skip
CORNERS = "xyxy"
DETECTORS = "torchvision.models.detection"
FEW = 0.1
MOST = 0.95
ENOUGH = 10
RESIZES = re.compile(r"resize|interpolate|zoom|rescale", re.IGNORECASE)
MEANINGS = {
    "inverted": "x2 < x1 or y2 < y1",
    "flat": "no width or no height",
    "outside": "a part outside the image",
}


@rule(
    "DLC309",
    severity=ERROR,
    needs="samples",
    title="Boxes that are degenerate, outside the image or in another format",
    why="A detector trains on the wrong places, or stops with an assert on the one box whose x2 "
    "is below x1; COCO files hold x, y, width, height where most models take corners.",
    fix="Convert where the annotations are read (torchvision.ops.box_convert(boxes, 'xywh', "
    "'xyxy')), transform boxes together with the image, clip them to it and drop empty ones; "
    "declare `fields: {boxes: {format: xywh}}` where that is the format.",
)
def bad_boxes(obs: Observation) -> Iterator[Finding]:
    """Fire on boxes that are impossible in the format which `fields` or the tensor declares.

    Where no format is declared it is a warning, and only when one format fits nearly all of them.
    Normalised boxes and images without a box are left alone.
    """
    judged = False
    for name, split in obs.splits.items():
        for field, boxes in split.boxes.items():
            if not kind(split, field).sure("boxes"):
                continue
            judged = True
            yield from _findings(name, split, field, boxes)
    if not judged:
        reason = "no field is known to hold boxes"
        raise NotApplicable(reason)


def _findings(name: str, split: Split, field: str, boxes: Boxes) -> Iterator[Finding]:
    if not boxes.n or boxes.unit == boxes.arrays - boxes.empty:
        return
    moved = _not_moved(split, field)
    resized = moved is not None and bool(RESIZES.search(moved.stage)) and split.role == "train"
    form, source = _format(split, field, boxes)
    if form not in FORMATS.values():
        if resized and moved is not None:
            yield _left_behind(name, split, field, moved)
        return
    severity = ERROR if source else WARNING
    misread = form == CORNERS and _looks_like_sizes(boxes)
    broken = tuple(f for f in ("inverted", "flat") if boxes.faults.get(f"{form}.{f}"))
    if broken:
        fault = Fault(form, source, severity, broken, misread=misread)
        yield _finding(name, split, field, fault)
    elif boxes.boxes.get(f"{form}.outside"):
        level = ERROR if moved else severity
        yield _finding(name, split, field, Fault(form, source, level, ("outside",), moved=moved))
    elif resized and moved is not None:
        yield _left_behind(name, split, field, moved)


def _format(split: Split, field: str, boxes: Boxes) -> tuple[str, str]:
    """Return the boxes' format and who declares it; no source where it is inferred."""
    said = str(ways.declared(split, field).get("format", "")).lower()
    if said:
        return FORMATS.get(said, said), "`fields`"
    if len(boxes.formats) == 1:
        form = next(iter(boxes.formats))
        return FORMATS.get(form, form), f"the tensors (format {form.upper()})"
    model = split.given.get("model")
    target = str(model.get("_target_", "")) if isinstance(model, Mapping) else ""
    if target.startswith(DETECTORS):
        return CORNERS, f"the model ({target.rpartition('.')[2]})"
    return _inferred(boxes), ""


def _inferred(boxes: Boxes) -> str:
    """Return the one format that nearly all boxes fit; empty when none or several do."""
    if boxes.n < ENOUGH:
        return "none"
    if _share(boxes, "xyxy.inverted") <= FEW and _share(boxes, "xyxy.outside") <= FEW:
        fits_sizes = not boxes.boxes.get("xywh.outside") and not boxes.boxes.get("xywh.flat")
        return "none" if fits_sizes else CORNERS
    return "none"


def _share(boxes: Boxes, fault: str) -> float:
    of = boxes.sized if fault.endswith("outside") else boxes.n
    return boxes.boxes.get(fault, 0) / max(of, 1)


def _looks_like_sizes(boxes: Boxes) -> bool:
    """Tell that x, y, width, height inside the image explain what corners do not."""
    fine = not boxes.boxes.get("xywh.flat") and _share(boxes, "xywh.outside") <= 1 - MOST
    return fine and boxes.sized > 0 and bool(boxes.boxes.get("xyxy.inverted"))


@dataclass(frozen=True)
class Fault:
    """What is wrong with a field's boxes, read in which format and declared by whom."""

    form: str
    source: str
    severity: Severity
    broken: tuple[str, ...]
    misread: bool = False
    moved: Step | None = None


def _finding(name: str, split: Split, field: str, fault: Fault) -> Finding:
    form, source, broken, moved = fault.form, fault.source, fault.broken, fault.moved
    boxes = split.boxes[field]
    faults = [f"{form}.{one}" for one in broken]
    tallies = [boxes.faults[one] for one in faults]
    count = sum(boxes.boxes[one] for one in faults)
    samples = next(tally for tally in tallies if tally.n)
    worst = boxes.worst.get(faults[0], ())
    step, journey = _maker(split, field)
    file, line = (step.file, step.line) if step and step.file else ways.returned(journey)
    guilty = moved or step
    stage = ways.stage(guilty) if guilty else None
    meaning = " or ".join(MEANINGS[one] for one in broken)
    evidence: dict[str, Any] = {
        "format": form,
        "declared_by": source or "inferred",
        "boxes": boxes.n,
        "bad": count,
        "faults": {one: boxes.boxes[one] for one in faults},
        "samples": list(samples.at),
        "box": [round(x, 2) for x in worst[:4]],
        "image": [int(x) for x in worst[4:]],
        "as_xywh_outside": boxes.boxes.get("xywh.outside", 0),
        **(ways.step_facts(step) if step else {}),
    }
    where = Where(name or None, field, stage, samples.at[0] if samples.at else None, file, line)
    message = (
        f"{count:,} of {boxes.n:,} boxes of {named(field)} have {meaning} ({_shown(worst)}; "
        f"{some(samples.n, samples.at)}), read as {form}"
    )
    message += f", declared by {source}" if source else ""
    if fault.misread:
        message += "; as x, y, width, height they lie inside the image: xywh read as xyxy"
    if moved is not None:
        message += f"; {ways.stage(moved)}{ways.at(moved)} changed the image and not the boxes"
    return Finding(message, where, evidence, fault.severity)


def _left_behind(name: str, split: Split, field: str, moved: Step) -> Finding:
    """Speak of an image that was resized after its boxes had their last change."""
    boxes = split.boxes[field]
    evidence = {"boxes": boxes.n, "high": boxes.high, **ways.step_facts(moved)}
    where = Where(name or None, field, ways.stage(moved), None, moved.file, moved.line)
    message = (
        f"{ways.stage(moved)}{ways.at(moved)} resized the image, and {named(field)} kept its "
        "numbers from before"
    )
    return Finding(message, where, evidence, WARNING)


def _shown(worst: tuple[float, ...]) -> str:
    size = f" in an image {worst[4]:.0f} wide, {worst[5]:.0f} high" if worst[4:] else ""
    return f"e.g. [{joined(f'{x:g}' for x in (round(v, 2) for v in worst[:4]))}]{size}"


def _maker(split: Split, field: str) -> tuple[Step | None, Journey | None]:
    """Find the step that declared or last made the boxes, in a bad sample's way where drawn."""
    for journey in ways.ways(split):
        steps = ways.chain(journey, field)
        if not steps:
            continue
        declaring = [step for step in steps if step.after.type == "BoundingBoxes"]
        return (declaring or steps)[0 if declaring else -1], journey
    return None, next(iter(ways.ways(split)), None)


def _not_moved(split: Split, field: str) -> Step | None:
    """Find a step that resized or cut the image after the boxes had their final numbers."""
    for journey in ways.ways(split):
        mine = ways.chain(journey, field)
        if not mine:
            continue
        last = max((journey.steps.index(step) for step in mine if _moves(step)), default=-1)
        for step in journey.steps[last + 1 :]:
            before, after = step.before, step.after
            if field in step.fields or not step.fields or before is None:
                continue
            if any(ways.same_place(step, one) for one in mine):
                continue
            old, new = ways.size(before), ways.size(after)
            resized = old and new and old != new and old != new[::-1]
            if resized and "C" in after.layout:
                return step
    return None


def _moves(step: Step) -> bool:
    before, after = step.before, step.after
    return before is None or (before.low, before.high) != (after.low, after.high)
