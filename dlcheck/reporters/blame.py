"""Which stage of a chain a finding speaks of."""

from __future__ import annotations

from collections.abc import Sequence

from dlcheck.findings import Finding
from dlcheck.observation import Split
from dlcheck.observation.steps import Steps
from dlcheck.reporters.stages import Stage

PHASES = {"collate": "batch", "batch": "batch", "iter": "batch", "model": "model", "step": "model"}


def guilty(
    stages: Sequence[Stage], finding: Finding, split: Split, returned: Sequence[object]
) -> int | None:
    """Find the stage that a finding speaks of: by its line and name, else by what failed.

    `returned` is the line that returned the sample, which stands for the stage that made it.
    """
    at = on_line(stages, finding)
    if at is not None:
        return at
    where = finding.where
    if where.file and (where.file, where.line) == tuple(returned):
        return _last(stages, "stage")
    failures = {key: one for key, one in split.failures.items() if key in finding.explains}
    kinds = {PHASES.get(failure.phase, "") for failure in failures.values()}
    if (where.file, where.line) in _lines(split.steps):
        kinds.add("model")
    if "model" in kinds or "model_error" in finding.evidence:
        kinds.add("refused")
    return next((n for n, stage in enumerate(stages) if stage.kind in kinds), None)


def on_line(stages: Sequence[Stage], finding: Finding) -> int | None:
    """Find the stage of a finding by its line and its name; of several on a line the last."""
    where = finding.where
    at_line = [
        number
        for number, stage in enumerate(stages)
        if where.file and (stage.file, stage.line) == (where.file, where.line)
    ]
    named = [n for n in at_line or range(len(stages)) if _is_named(stages[n], where.stage)]
    return next(iter([*named[-1:], *at_line[-1:]]), None)


def whole_sample(stages: Sequence[Stage]) -> int | None:
    """Find the stage that stands for the sample as it was made."""
    return _last(stages, "sample")


def _last(stages: Sequence[Stage], kind: str) -> int | None:
    return next((n for n in reversed(range(len(stages))) if stages[n].kind == kind), None)


def _is_named(stage: Stage, words: str | None) -> bool:
    return bool(words) and stage.kind == "stage" and stage.title in str(words)


def _lines(steps: Steps | None) -> set[tuple[str, int]]:
    """Return the lines of the user's step that were seen at work."""
    if steps is None:
        return set()
    ends = [end for one in steps.optimizers.values() for end in (one.stepped, one.backward) if end]
    return {(line.file, line.line) for line in (*steps.lines, *ends)}
