"""DLC307: images of a batch are mixed and their labels are not, or otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from dlcheck.findings import ERROR, Finding, NotApplicable, Where, rule
from dlcheck.observation import Journey, Mix, Observation, Split, Step
from dlcheck.rules import ways
from dlcheck.rules.words import bare, base, joined, named

# A share below is a trace of another image, no mixture of two.
CLEAR = 0.1
# How far a label may be from what its image says, in a class's share.
SLACK = {"mixup": 0.03, "cutmix": 0.05}
ONE = 0.01
MOST_SHOWN = 4
HALF = 0.5
NO_LABEL = re.compile(
    r"(^|[_.])(idx|index|indices|id|ids|uid|path|frame|time|timestamp|count|length|len|size|width"
    r"|height|h|w|camera|domain|group|fold|seed|weight|speaker|patient|subject)s?($|[_.])",
    re.IGNORECASE,
)


@rule(
    "DLC307",
    severity=ERROR,
    needs="batches",
    title="Images are mixed, and their labels are not mixed with the same weights",
    why="A picture that is 60 % of one class and 40 % of another is taught as pure, or as a class "
    "that is not in it; the loss falls and accuracy stays below what it was without mixing.",
    fix="Mix the one-hot labels with the same permutation and weight as the images, or return both "
    "label sets and the weight for the loss (torchvision.transforms.v2.MixUp and CutMix do it).",
)
def soft_label(obs: Observation) -> Iterator[Finding]:
    """Fire where the weights solved for from samples and batch differ between image and label.

    Silent where the other labels or the weight stand elsewhere in the batch.
    """
    findings = [
        finding
        for name, split in obs.splits.items()
        if ways.COLLATED in split.journeys
        for finding in _split(name, split, split.journeys[ways.COLLATED])
    ]
    if not findings:
        ways.need_journeys(obs)
        if not any(j.mixes for s in obs.splits.values() for j in s.journeys.values()):
            raise NotApplicable("no batch was seen to mix its samples")
    yield from findings


def _split(name: str, split: Split, batch: Journey) -> Iterator[Finding]:
    by_target: dict[tuple[str, str], list[Mix]] = {}
    for mix in batch.mixes:
        by_target.setdefault((mix.field, mix.target), []).append(mix)
    soft_ones = {field for (field, _), mixes in by_target.items() if mixes[0].target_how == "soft"}
    kept_told = set()
    for (field, target), mixes in by_target.items():
        if mixes[0].target_how == "soft":
            finding = _soft(name, split, batch, mixes)
        elif field in soft_ones or field in kept_told or not _is_label(split, batch, target):
            finding = None
        else:
            finding = _kept(name, split, batch, mixes)
            kept_told |= {field} if finding else set()
        if finding is not None:
            yield finding


def _is_label(split: Split, batch: Journey, target: str) -> bool:
    """Tell class numbers from indexes of samples and other numbers that stay as they are."""
    if str(ways.declared(split, target).get("kind", "target")) not in ("target", "label"):
        return False
    if NO_LABEL.search(target):
        return False
    seen = split.fields.get(target)
    if seen is None or seen.high is None or seen.low is None or not split.of:
        state = batch.fields.get(target)
        return state is None or state.high is None or not split.of or state.high < HALF * split.of
    return seen.high - seen.low + 1 < max(HALF * split.of, 2 * ONE)


def _kept(name: str, split: Split, batch: Journey, mixes: Sequence[Mix]) -> Finding | None:
    wrong = [m for m in mixes if m.telling and not m.carried and _is_clear(m.weight)]
    if not wrong or any(m.carried for m in mixes):
        return None
    first = wrong[0]
    message = (
        f"the collate function mixes {named(first.field)} ({_of(first)} in one row) and leaves the "
        f"labels {named(first.target)} unmixed: each of the {len(wrong)} rows seen that clearly "
        f"mix two classes keeps one hard label"
    )
    return _finding(name, split, batch, wrong, message)


def _soft(name: str, split: Split, batch: Journey, mixes: Sequence[Mix]) -> Finding | None:
    sums = [
        m for m in mixes
        if m.total is not None and m.total_before is not None
        and abs(m.total_before - 1) <= ONE < abs(m.total - 1)
    ]  # fmt: skip
    wrong = [m for m in mixes if m.off > SLACK.get(m.how, ONE)]
    if len(sums) > len(mixes) * HALF:
        first = max(sums, key=lambda m: abs((m.total or 0.0) - 1))
        message = (
            f"rows of {named(first.target)} sum to {first.total:.3g} after mixing, where those of "
            f"the samples sum to 1 ({_of(first)} of {named(first.field)})"
        )
        return _finding(name, split, batch, sums, message)
    if not wrong or len(wrong) < len(mixes) / MOST_SHOWN:
        return None
    first = next(
        (m for m in wrong if m.target_weight is not None and _is_clear(m.weight)), wrong[0]
    )
    said = _target_of(first)
    message = (
        f"{named(first.field)} is mixed of {_of(first)}, but {named(first.target)} of {said}: "
        f"{len(wrong)} of {len(mixes)} mixed rows have labels of another mixture than the image"
    )
    return _finding(name, split, batch, wrong, message)


def _target_of(mix: Mix) -> str:
    if mix.target_weight is None or not mix.target_of:
        return f"something else (off by {mix.off:.2f})"
    one, other = (*mix.target_of, "another")[:2]
    if abs(mix.target_weight - 1) <= ONE:
        return f"sample {one} alone"
    return f"{mix.target_weight:.2f} of sample {one} and {1 - mix.target_weight:.2f} of {other}"


def _of(mix: Mix) -> str:
    one, other = mix.of
    return f"{mix.weight:.2f} of sample {one} and {1 - mix.weight:.2f} of {other}"


def _is_clear(weight: float) -> bool:
    return CLEAR <= weight <= 1 - CLEAR


def _finding(
    name: str, split: Split, batch: Journey, wrong: Sequence[Mix], message: str
) -> Finding:
    step = _mixing_step(batch, wrong[0].field)
    file, line = (step.file, step.line) if step else ways.returned(batch)
    collate = bare(split.loader.collate) if split.loader else ""
    rows: list[dict[str, Any]] = [
        {"row": m.row, "how": m.how, "of": list(m.of), "lam": m.weight,
         "label_lam": 1.0 if m.target_how == "kept" else m.target_weight,
         "label_of": list(m.target_of or m.of[:1]), "label_sum": m.total}
        for m in wrong[:MOST_SHOWN]
    ]  # fmt: skip
    evidence = {
        "images": wrong[0].field,
        "labels": wrong[0].target,
        "mixed": rows,
        "collate": collate,
        **({"code": step.text.strip(), "line": f"{base(step.file)}:{step.line}"} if step else {}),
        "weights": joined(dict.fromkeys(f"{m.weight:.3f}" for m in wrong)),
    }
    where = Where(name or None, wrong[0].target, collate or None, file=file, line=line)
    return Finding(message, where, evidence)


def _mixing_step(batch: Journey, field: str) -> Step | None:
    """Find the line that mixed: the last that changed the numbers of a whole batch."""
    steps = [
        step
        for step in ways.chain(batch, field)
        if step.before and step.before.shape == step.after.shape and not step.scale
        and (step.before.std != step.after.std or ways.changes(step, "range"))
    ]  # fmt: skip
    finished = batch.fields.get(field)
    whole = [s for s in steps if finished is None or s.after.shape == finished.shape]
    return whole[-1] if whole else None
