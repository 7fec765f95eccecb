"""DLC107: what the user's own `expect`, model and other splits say a batch should be."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping

from dlcheck.findings import ERROR, Finding, NotApplicable, Where, rule
from dlcheck.observation import ModelRun, Observation, Split, Trial, shape_text
from dlcheck.rules import between, ways
from dlcheck.rules.broadcast import refuses
from dlcheck.rules.expecting import Broken, broken, expectations
from dlcheck.rules.words import bare, base, joined, named

MOST_MESSAGE = 160
STRONGER = (
    "ragged-batch", "channel-count-varies", "structure-varies", "misaligned-pair",
    "ragged-annotations", "hwc-image", "layout-flip", "reshape-scramble", "bgr-order",
    "not-scaled", "double-scaled", "non-finite", "dtype-mismatch", "label-range", "soft-label",
    "mask-values", "bad-boxes", "overflow-wrap", "broadcast-target",
)  # fmt: skip


@rule(
    "DLC107",
    severity=ERROR,
    needs="batches",
    title="A batch is not what the config expects, or what the model or another split takes",
    why="A contract that is broken shows late: as an error inside a layer, or not at all, when the "
    "validation split is normalised otherwise than the training split.",
    fix="Change the named stage, or `expect:` where the data is right; build both splits' "
    "transforms from the same constants.",
    yields_to=STRONGER,
)
def contract_mismatch(obs: Observation) -> Iterator[Finding]:
    """Fire where a field differs from `expect`, a layer of the model refuses it, or splits differ.

    `expect` and the model give errors, splits of other normalisation, classes, layout or dtype
    warnings. Splits of other sizes or ranges are no fault.
    """
    expected = list(_expected(obs))
    findings = [*expected, *_refusals(obs), *_tried(obs, expected), *between.findings(obs)]
    if not findings and not _judged(obs):
        reasons = [s.model_run.reason for s in obs.splits.values() if s.model_run]
        raise NotApplicable(next(iter(reasons), "no expect, no model and no second split"))
    yield from findings


def _judged(obs: Observation) -> bool:
    """Tell whether there was a contract to compare with."""
    runs = [split.model_run for split in obs.splits.values() if split.model_run]
    expects = any(split.given.get("expect") for split in obs.splits.values())
    tried = any(not trial.reason for split in obs.splits.values() for trial in split.trials)
    return expects or tried or any(not run.reason for run in runs) or between.comparable(obs)


def _expected(obs: Observation) -> Iterator[Finding]:
    for name, split in obs.splits.items():
        if not (split.samples or split.again or split.batches):
            continue
        for field, said in expectations(split):
            for one in broken(split, field, said):
                yield _broken_finding(name, split, field, one)
        yield from _unseen(name, split)


def _broken_finding(name: str, split: Split, field: str, one: Broken) -> Finding:
    step, journey = one.step, one.journey
    file, line = (step.file, step.line) if step else ways.returned(journey)
    if line is None and split.loader is not None:
        file, line = split.loader.file, split.loader.line
    sample = one.sample if one.sample is not None else journey.sample if journey else None
    stage = ways.stage(step) if step else None
    evidence = {
        "key": one.key,
        "expected": one.expected,
        "seen": one.seen,
        "batch": _batch_shapes(split, field),
        **(ways.step_facts(step) if step else {}),
    }
    made = f", as {stage}{ways.at(step)} leaves it" if step else ""
    message = f"{named(field)} has {one.key} {one.seen} where expect says {one.expected}{made}"
    where = Where(name or None, field, stage, sample, file, line)
    return Finding(message, where, evidence)


def _batch_shapes(split: Split, field: str) -> list[str]:
    seen = split.batch_fields.get(field)
    return list(seen.shapes)[:3] if seen else []


def _unseen(name: str, split: Split) -> Iterator[Finding]:
    """Fire for fields that `expect` names and no sample or batch has."""
    seen = list(dict.fromkeys([*split.fields, *split.batch_fields]))
    matched = {field for field, _ in expectations(split)}
    expect = split.given.get("expect")
    names = list(expect) if isinstance(expect, Mapping) else []
    failed = any(f.phase in ("sample", "collate") for f in split.failures.values())
    # A collate may make fields of its own, which only a batch shows.
    if not seen or not split.batches or failed:
        return
    for wanted in names:
        if any(ways.fits(field, wanted) for field in matched):
            continue
        near = difflib.get_close_matches(wanted, seen, n=1, cutoff=0.4)
        hint = f"; the nearest is {named(near[0])}" if near else ""
        loader = split.loader
        where = Where(
            name or None, wanted, file=loader.file if loader else None,
            line=loader.line if loader else None,
        )  # fmt: skip
        shown = joined(named(field) for field in seen[:8])
        message = (
            f"expect names {named(wanted)}, which no sample or batch has: they have {shown}{hint}"
        )
        yield Finding(message, where, {"expected": wanted, "seen": seen, "nearest": near})


def _refusals(obs: Observation) -> Iterator[Finding]:
    for name, split in obs.splits.items():
        run = split.model_run
        if run is not None and run.kind and not _said_otherwise(split, run):
            yield _refusal(name, split, run)


def _tried(obs: Observation, expected: list[Finding]) -> Iterator[Finding]:
    """Fire where a layer or loss of the user's step refused a batch that it was given."""
    said = {(one.where.split, one.where.field) for one in expected}
    for name, split in obs.splits.items():
        for trial in split.trials:
            if trial.about and not refuses(trial) and (name or None, trial.field) not in said:
                yield _step_refusal(name, split, trial)


def _step_refusal(name: str, split: Split, trial: Trial) -> Finding:
    failure = split.failures.get(trial.failure)
    text = failure.message if failure else ""
    run = ModelRun(
        field=trial.field or "", dtype=trial.dtype, shape=trial.shape, failure=failure,
        layer=trial.layer, kind=trial.kind or trial.loss or "the step", wanted=trial.wanted,
        got=trial.got, about=trial.about,
    )  # fmt: skip
    finding = _refusal(name, split, run, "the step")
    frame = failure.user_frame if failure else None
    where = finding.where
    if trial.field is None or where.line is None:
        where = Where(name or None, trial.field, file=frame.file if frame else None,
                      line=frame.line if frame else None)  # fmt: skip
    evidence = finding.evidence | {
        "tried_on": f"the {trial.batch} batch",
        "loss": trial.loss,
        "step_line": f"{base(frame.file)}:{frame.line}  {frame.text}" if frame else "",
    }
    message = finding.message
    if trial.about == "classes":
        message = (
            f"{trial.loss} got the label {trial.got} in {named(run.field)} for {trial.wanted} "
            "outputs of the model"
        )
    elif trial.about == "index":
        message = (
            f"{trial.kind} `{trial.layer}` has {trial.wanted} rows, and {named(run.field)} holds "
            f"the index {trial.got}"
        )
    elif trial.field is None:
        message = f"the step refuses the {trial.batch} batch: {text[:MOST_MESSAGE]}"
    return dataclasses.replace(finding, message=message, where=where, evidence=evidence)


def _said_otherwise(split: Split, run: ModelRun) -> bool:
    """Tell a dtype that the config itself expects: then something casts it on the way."""
    return run.about == "dtype" and ways.expected(split, run.field).get("dtype") == run.dtype


def _refusal(name: str, split: Split, run: ModelRun, by: str = "") -> Finding:
    model = split.given.get("model")
    node = model if isinstance(model, Mapping) else {"_target_": str(model or "")}
    target = bare(str(node.get("_target_") or node.get("class_path") or "").replace(":", "."))
    layer = f"{run.kind} `{run.layer}`" if run.layer else run.kind
    text = run.failure.message if run.failure else ""
    quarrel = f" wants {run.wanted} {run.about} and got {run.got}" if run.wanted else ""
    if run.about == "dtype" and run.wanted:
        quarrel = f" wants {run.wanted} and got {run.got}"
    said = f" refuses it: {text[:MOST_MESSAGE]}" if not quarrel else f"{quarrel}"
    given = f"{run.dtype} {shape_text(run.shape)}"
    by = by or f"the model {target}"
    message = f"{by} does not take {named(run.field)} ({given}): {layer}{said}"
    step, journey = ways.last_change(split, run.field, "dtype" if run.about == "dtype" else "shape")
    file, line = (step.file, step.line) if step else ways.returned(journey)
    if line is None and split.loader is not None:
        file, line = split.loader.file, split.loader.line
    evidence = {
        "layer": run.layer,
        "kind": run.kind,
        "wanted": run.wanted,
        "got": run.got,
        "about": run.about,
        "batch": given,
        "model_error": text,
        "expected": run.wanted,
        "seen": run.got,
        **(ways.step_facts(step) if step else {}),
    }
    stage = ways.stage(step) if step else None
    where = Where(name or None, run.field, stage, journey.sample if journey else None, file, line)
    return Finding(message, where, evidence)
