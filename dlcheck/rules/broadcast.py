"""DLC110: predictions and targets whose shapes do not belong together in a loss."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from dlcheck.findings import ERROR, WARNING, Finding, NotApplicable, Severity, Where, rule
from dlcheck.observation import Failure, Line, Meeting, Observation, Split, Trial
from dlcheck.rules import ways
from dlcheck.rules.words import base, named

BY_INDEX = ("cross_entropy", "nll_loss", "multi_margin_loss")
WHOLE = ("int", "uint", "bool")
ONE_HOT = re.compile(
    r"class probabilities|multi-target|0D or 1D target|spatial targets", re.IGNORECASE
)
MATRIX = 2


@rule(
    "DLC110",
    severity=ERROR,
    needs="batches",
    title="Prediction and target have shapes that do not belong together",
    why="A loss that broadcasts (B, 1) with (B,) compares each prediction with every target: it "
    "runs, and the model learns the mean. Class losses want indexes, not one-hot rows.",
    fix="Give both the same shape: prediction.squeeze(1), or target.unsqueeze(1). For class losses "
    "return the class index, or floating point probabilities.",
)
def broadcast_target(obs: Observation) -> Iterator[Finding]:
    """Fire where a loss broadcasts prediction and target, or refuses the target's shape.

    Seen when the step, or the config's model and loss, is really called. Equal shapes, a target
    of one number, and probabilities for class losses are healthy.
    """
    if not any(trial for split in obs.splits.values() for trial in split.trials):
        raise NotApplicable("no step, and no model with a loss, was tried on a batch")
    for name, split in obs.splits.items():
        said: set[tuple[str, str | None]] = set()
        for trial in split.trials:
            for finding in _of_trial(name, split, trial):
                key = (str(finding.evidence.get("loss")), finding.where.field)
                if key not in said:
                    said.add(key)
                    yield finding


def _of_trial(name: str, split: Split, trial: Trial) -> Iterator[Finding]:
    if refuses(trial):
        yield _refused(name, split, trial)
        return
    for meeting in trial.meetings:
        level = _level(meeting)
        if level is not None:
            yield _met(name, split, meeting, level)


def refuses(trial: Trial) -> bool:
    """Tell whether a loss refused the shapes that it was given."""
    return bool(trial.failure and trial.loss and trial.about == "size")


def _level(meeting: Meeting) -> Severity | None:
    """Call it an error where the prediction is repeated; a warning where only the target is."""
    if math.prod(meeting.target) <= 1 or math.prod(meeting.prediction) <= 1:
        return None
    return ERROR if meeting.made != meeting.prediction else WARNING


def _refused(name: str, split: Split, trial: Trial) -> Finding:
    failure = split.failures.get(trial.failure)
    text = failure.message if failure else ""
    given = f"{named(trial.field) if trial.field is not None else 'its target'}"
    got = f"{shown(trial.shape)} {trial.dtype}"
    if trial.loss in BY_INDEX and ONE_HOT.search(text) and trial.dtype.startswith(WHOLE):
        wants = f"class indexes of shape {shown(trial.shape[:1])}"
        rows = "one-hot rows" if len(trial.shape) == MATRIX and trial.shape[1] > 1 else "columns"
        message = f"{trial.loss} wants {wants} and got {given} of shape {got}: {rows}"
    else:
        message = (
            f"{trial.loss} refuses {given} of shape {got} for a prediction of shape "
            f"{shown(trial.other)}: {text.splitlines()[0] if text else ''}"
        )
    evidence: dict[str, Any] = {
        "loss": trial.loss,
        "prediction": list(trial.other),
        "target": list(trial.shape),
        "dtype": trial.dtype,
        "batch": trial.batch,
        "error": text[:300],
    }
    explains = frozenset({trial.failure})
    where = _where(name, split, trial.field, _line_of(failure))
    return Finding(message, where, evidence, explains=explains)


def _met(name: str, split: Split, one: Meeting, level: Severity) -> Finding:
    field = named(one.field) if one.field is not None else "the target"
    joins = {"sub": "a difference", "mul": "a product", "div": "a quotient"}
    what = next((word for part, word in joins.items() if part in one.function), one.function)
    more = "each prediction meets every target" if level == ERROR else "the target is repeated"
    message = (
        f"{what} broadcasts a prediction of shape {shown(one.prediction)} with {field} of shape "
        f"{shown(one.target)} to {shown(one.made)}: {more}"
    )
    evidence: dict[str, Any] = {
        "loss": one.function,
        "prediction": list(one.prediction),
        "target": list(one.target),
        "made": list(one.made),
    }
    if one.at is not None:
        evidence["line"] = f"{base(one.at.file)}:{one.at.line}  {one.at.text}"
    return Finding(message, _where(name, split, one.field, one.at), evidence, severity=level)


def _where(name: str, split: Split, field: str | None, at: Line | None) -> Where:
    """Point at the line that makes the target where a way shows it, else at the loss."""
    if at is not None:
        return Where(name or None, field, at.function, file=at.file, line=at.line)
    journey = ways.last_change(split, field or "", "shape")[1]
    file, line = ways.returned(journey)
    return Where(name or None, field, file=file, line=line)


def _line_of(failure: Failure | None) -> Line | None:
    frame = failure.user_frame if failure else None
    if frame is None:
        return None
    return Line(frame.file, frame.line, frame.function, frame.text)


def shown(shape: tuple[int, ...]) -> str:
    """Write a shape as torch does: (8, 1)."""
    return str(tuple(shape))
