"""DLC204: images whose first channel is blue, where red is expected first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dlcheck.findings import WARNING, Finding, Where, rule
from dlcheck.observation import Journey, Observation, Split
from dlcheck.rules import ways
from dlcheck.rules.words import bare, base, named

BGR = "BGR"
# By how much the better of the two orders must win before a journey has a say.
MARGIN = 0.03
WITNESSES = 2
CLOSE = 0.004
BYTE = 255.0
# Statistics and weights of these are in R,G,B order.
RGB_MODELS = ("torchvision.", "timm.", "transformers.", "segmentation_models_pytorch.")
# Published means, red first. Means of other data tell no order.
PUBLISHED = {
    "ImageNet": (0.485, 0.456, 0.406),
    "CLIP": (0.4815, 0.4578, 0.4082),
    "CIFAR-10": (0.4914, 0.4822, 0.4465),
    "CIFAR-100": (0.5071, 0.4867, 0.4408),
    "Kinetics": (0.4322, 0.3947, 0.3765),
    "COCO": (0.4711, 0.4475, 0.4079),
}
_TRIPLE = re.compile(
    r"(?<![\d.])(\d+(?:\.\d+)?)[,\s]+(\d+(?:\.\d+)?)[,\s]+(\d+(?:\.\d+)?)(?![\d.])"
)
# These normalise with ImageNet's mean and std when they are given none.
_BY_DEFAULT = ("albumentations",)


@rule(
    "DLC204",
    severity=WARNING,
    needs="batches",
    title="Channels are B,G,R where statistics or weights are R,G,B",
    why="cv2 reads blue first; means, stds and pretrained weights in R,G,B order then meet the "
    "wrong channel, which costs accuracy and fails nowhere.",
    fix="Call cv2.cvtColor(image, cv2.COLOR_BGR2RGB) after imread; if blue comes first by design, "
    "declare `fields: {image: {colour: BGR}}`.",
)
def bgr_order(obs: Observation) -> Iterator[Finding]:
    """Fire where channels resemble those of the file in reverse and R,G,B figures are used."""
    findings = [
        finding
        for name, split in obs.splits.items()
        for field in ways.traced_fields(split)
        if (finding := _bgr_finding(name, split, field))
    ]
    if not findings:
        ways.need_journeys(obs)
    yield from findings


def _bgr_finding(name: str, split: Split, field: str) -> Finding | None:
    said = ways.declared(split, field)
    if str(said.get("colour", said.get("color", ""))).upper() == BGR:
        return None
    reversed_, straight = _witnesses(split, field)
    enough = len(reversed_) >= min(WITNESSES, len(reversed_) + len(straight))
    if not reversed_ or not enough or len(reversed_) <= len(straight):
        return None
    because = _wants_rgb(split, field, reversed_)
    if not because:
        return None
    journey = reversed_[0]
    opened = ways.reader(journey.opened, BGR) or ways.reader(journey.opened)
    file, line = (opened.file, opened.line) if opened else (None, None)
    if line is None:
        file, line = ways.returned(journey)
    colours = journey.colours[field]
    evidence = {
        "correlation": {order.upper(): round(value, 3) for order, value in colours.items()},
        "reversed": len(reversed_),
        "straight": len(straight),
        "read_by": opened.by if opened else "",
        "expects_rgb": because,
    }
    path = opened.path if opened else None
    where = Where(name or None, field, sample=journey.sample, file=file, line=line, path=path)
    reader = f" as {opened.by} of {base(opened.path)} gives them" if opened and opened.by else ""
    message = (
        f"the channels of {named(field)} are B,G,R{reader} (correlation with the file's B,G,R "
        f"{colours['bgr']:.2f}, with its R,G,B {colours['rgb']:.2f}), but {because}"
    )
    return Finding(message, where, evidence)


def _witnesses(split: Split, field: str) -> tuple[list[Journey], list[Journey]]:
    """Part the journeys that can tell into those that found B,G,R and those that found R,G,B."""
    reversed_, straight = [], []
    for journey in ways.ways(split):
        colours = journey.colours.get(field)
        if not colours or "rgb" not in colours or "bgr" not in colours:
            continue
        lead = colours["bgr"] - colours["rgb"]
        if lead > MARGIN:
            reversed_.append(journey)
        elif lead < -MARGIN:
            straight.append(journey)
    return reversed_, straight


def _wants_rgb(split: Split, field: str, journeys: list[Journey]) -> str:
    """Say what reads the channels as R,G,B; empty when nothing does or B,G,R means are used."""
    said = [_order_of(step.stage, step.parameters) for j in journeys for step in _steps(j, field)]
    if any(order == BGR for order, _ in said):
        return ""
    if str(ways.declared(split, field).get("colour", "")).upper() == "RGB":
        return "`fields` declares R,G,B"
    normalised = next((words for order, words in said if order), "")
    if normalised:
        return normalised
    wanted = ways.expected(split, field).get("normalize")
    if _published(_mean(wanted))[0] == "RGB" or str(wanted).lower() == "imagenet":
        return f"expect says normalize {wanted}, which is R,G,B"
    model = split.given.get("model")
    target = str(model.get("_target_", "")) if isinstance(model, Mapping) else ""
    return f"the weights of {bare(target)} are for R,G,B" if target.startswith(RGB_MODELS) else ""


def _steps(journey: Journey, field: str) -> list[Any]:
    return ways.chain(journey, field)


def _order_of(stage: str, parameters: str) -> tuple[str, str]:
    """Return (order, words) of a stage that normalises with published means; else empty ones."""
    for match in _TRIPLE.finditer(parameters):
        means = (float(match[1]), float(match[2]), float(match[3]))
        order, name = _published(means)
        if order:
            return order, f"{bare(stage)} uses the {order} mean of {name}"
    return "", ""


def _mean(wanted: Any) -> tuple[float, ...]:
    mean = wanted.get("mean") if isinstance(wanted, Mapping) else None
    return tuple(mean) if isinstance(mean, list | tuple) else ()


def _published(means: tuple[float, ...]) -> tuple[str, str]:
    """Look a mean up, on a scale of 1 or of 255: ("RGB" | "BGR" | "", whose it is)."""
    for name, known in PUBLISHED.items():
        for scale in (1.0, BYTE):
            close = CLOSE * scale
            for order, wanted in (("RGB", known), (BGR, known[::-1])):
                pairs = list(zip(means, wanted, strict=False))
                if len(means) == len(wanted) and all(abs(a - b * scale) <= close for a, b in pairs):
                    return order, name
    return "", ""
