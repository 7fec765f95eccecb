"""DLC311: byte arithmetic that runs past 255 or 0 and comes out at the other end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dlcheck.findings import ERROR, Finding, Where, rule
from dlcheck.observation import Journey, Observation, Split, Step
from dlcheck.rules import ways
from dlcheck.rules.words import named

ARITHMETIC = re.compile(r"[+*]| - ")
CLAMPING = (
    "cv2.", "F.", "TF.", "TVF.", "VF.", "A.", "T.", "v2.", "K.", "functional.", "transforms.",
    "torchvision.", "albumentations.", "kornia.", "Image.", "ImageEnhance.", "ImageOps.",
    "skimage.",
)  # fmt: skip


@rule(
    "DLC311",
    severity=ERROR,
    needs="samples",
    title="uint8 arithmetic wraps round: bright pixels turn black and dark ones white",
    why="numpy and torch compute uint8 modulo 256: 250 + 10 is 4. A clip afterwards can do "
    "nothing, and the picture has speckles where it was brightest or darkest.",
    fix="Compute in float or int16, then clip to 0..255, then cast to uint8; or use cv2.add, which "
    "saturates.",
)
def overflow_wrap(obs: Observation) -> Iterator[Finding]:
    """Fire at the step where pixels ran over, as the numbers before and after it show.

    Pixels that noise, an offset or a factor carried over lie near their old value modulo 256;
    those that were erased, pasted, inverted or moved do not.
    """
    findings = [finding for name, split in obs.splits.items() for finding in _wrapped(name, split)]
    if not findings:
        ways.need_journeys(obs)
    yield from findings


def _wrapped(name: str, split: Split) -> Iterator[Finding]:
    """Yield one finding for each line; what follows from it is not told again."""
    found: dict[tuple[str, int], list[tuple[Journey, Step]]] = {}
    journeys = [*ways.ways(split), *filter(None, [split.journeys.get(ways.COLLATED)])]
    for journey in journeys:
        for step in journey.steps:
            if step.wraps and step.fields and not _saturates(step):
                found.setdefault((step.file, step.line), []).append((journey, step))
    traced = len(ways.ways(split))
    for (file, line), steps in found.items():
        journey, step = max(steps, key=lambda one: one[1].wraps)
        shares = {str(j.sample): round(s.wraps, 4) for j, s in steps}
        field = _field(journey, step)
        where = Where(name or None, field, ways.stage(step), journey.sample, file, line)
        message = (
            f"{ways.stage(step)} carries {_percent(step.wraps)} of the pixels of {named(field)} "
            f"past 0 or 255, where uint8 starts again at the other end"
        )
        evidence = {**ways.step_facts(step), "share": step.wraps, "shares": shares,
                    "traced": traced}  # fmt: skip
        yield Finding(message, where, evidence)


def _saturates(step: Step) -> bool:
    """Tell a stage of a library, which clamps, from arithmetic on a line of the user's own.

    A stage of a container bears the name of its class; the lines inside the user's own stages are
    steps by themselves, named by what they call. A call that clamps may be given what ran over.
    """
    if step.container and step.stage.isidentifier() and step.stage[:1].isupper():
        return True
    return step.stage.startswith(CLAMPING) and not ARITHMETIC.search(step.text)


def _field(journey: Journey, step: Step) -> str:
    """Choose, of the fields that came of a step, the one that is most like a picture."""
    axes = {field: len(journey.fields[field].shape or ()) for field in step.fields
            if field in journey.fields}  # fmt: skip
    return max(axes, key=lambda field: axes[field], default=step.fields[0])


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 1e-3 else f"{share:.2%}"  # noqa: PLR2004
