"""DLC304: dtypes that vary, that the loss refuses, or that double memory for nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dlcheck.findings import ERROR, WARNING, Finding, Severity, Where, rule
from dlcheck.observation import Failure, Field, Journey, Observation, Split, Step, shape_of
from dlcheck.rules import ways
from dlcheck.rules.kinds import INPUTS, LIKELY, is_container, is_first, kind
from dlcheck.rules.words import bare, joined, named

REFUSED = frozenset({"int8", "int16", "int32", "uint16", "uint32", "uint64", "float64", "float16"})
NARROW = frozenset({"int8", "int16", "int32"})
DOUBLE, SINGLE = "float64", "float32"
BINARY = 2
LARGE = 4_096
CLASS_LOSSES = ("CrossEntropy", "NLLLoss", "cross_entropy", "nll_loss")
REAL_LOSSES = ("MSELoss", "L1Loss", "SmoothL1", "Huber", "BCE", "mse_loss", "l1_loss")
CAST = re.compile(r"can't be cast|expected scalar type|dtype", re.IGNORECASE)


@rule(
    "DLC304",
    severity=ERROR,
    needs="samples",
    title="A dtype that varies, that the loss refuses, or that doubles memory",
    why="torch's losses take class labels as int64 alone; a dtype that differs between samples "
    "fails in the collate or is promoted without a word; numpy computes in float64 by itself.",
    fix="Cast once, where the value is made: torch.tensor(label, dtype=torch.int64), "
    "array.astype(np.float32).",
    yields_to=("contract-mismatch",),
)
def dtype_mismatch(obs: Observation) -> Iterator[Finding]:
    """Fire where samples differ in dtype, labels are not int64, or large inputs are float64.

    An error where it was executed and failed, or the declared loss or classes refute it. Half
    precision, bfloat16 and uint8 are choices.
    """
    for name, split in obs.splits.items():
        for field, seen in split.fields.items():
            if is_container(seen):
                continue
            found = (
                _varies(name, split, field, seen)
                or _refused(name, split, field, seen)
                or _doubled(name, split, field, seen)
            )
            if found:
                yield found


def _varies(name: str, split: Split, field: str, seen: Field) -> Finding | None:
    if len(seen.dtypes) < 2 or "PIL.Image" in seen.types:  # noqa: PLR2004
        return None
    counts = {dtype: tally.n for dtype, tally in seen.dtypes.items()}
    rare = min(counts, key=lambda dtype: counts[dtype])
    failed = _failed(split, field)
    batches = split.batch_fields.get(field)
    if failed is None and batches is None:
        return None
    step, journey = _caster(split, field, rare)
    sample = next(iter(seen.dtypes[rare].at), None)
    file, line = _place(split, step, journey)
    evidence = {
        "dtypes": counts,
        "samples": {dtype: list(tally.at) for dtype, tally in seen.dtypes.items()},
        "batch_dtypes": list(batches.dtypes) if batches else [],
        "error": failed.message[:500] if failed else "",
        **(ways.step_facts(step) if step else {}),
    }
    how = f"; batches come out {joined(batches.dtypes)}" if batches else ""
    if failed:
        how = f"; the batch could not be joined: {failed.message.splitlines()[0][:200]}"
    message = (
        f"{named(field)} is {joined(f'{dtype} in {n:,}' for dtype, n in counts.items())} samples"
        f"{how}"
    )
    where = Where(name or None, field, ways.stage(step) if step else None, sample, file, line)
    keys = frozenset({failed.key}) if failed else frozenset()
    return Finding(message, where, evidence, ERROR if failed else WARNING, explains=keys)


def _failed(split: Split, field: str) -> Failure | None:
    """Return the collate's failure on a batch in which the field's dtypes differ."""
    for failure in split.failures.values():
        if failure.phase != "collate" or not CAST.search(failure.message):
            continue
        dtypes = {s.leaves[field].dtype for s in failure.samples if field in s.leaves}
        if len(dtypes) > 1:
            return failure
    return None


def _refused(name: str, split: Split, field: str, seen: Field) -> Finding | None:
    """Judge class labels, and float64 targets of a loss on real numbers."""
    final = split.batch_fields.get(field, seen)
    dtypes = set(final.dtypes)
    if len(dtypes) != 1:
        return None
    dtype = dtypes.pop()
    severity, because = _why_refused(split, field, seen, dtype)
    if severity is None:
        return None
    step, journey = _caster(split, field, dtype)
    file, line = _place(split, step, journey)
    evidence = {
        "dtype": dtype,
        "wanted": "int64" if "class" in because else "float32",
        "because": because,
        "range": [seen.low, seen.high],
        **(ways.step_facts(step) if step else {}),
    }
    message = f"{named(field)} reaches the loss as {dtype}: {because}"
    where = Where(name or None, field, ways.stage(step) if step else None, None, file, line)
    return Finding(message, where, evidence, severity)


def _why_refused(split: Split, field: str, seen: Field, dtype: str) -> tuple[Severity | None, str]:
    loss = loss_name(split)
    ranks = {len(shape) for text in seen.shapes if (shape := shape_of(text)) is not None}
    made = split.batch_fields.get(field)
    # A collate may turn class indices into rows of weights (MixUp); those are float by right.
    ranks |= {len(shape) - 1 for text in (made.shapes if made else ()) if (shape := shape_of(text))}
    found = kind(split, field)
    classes = "classes" in ways.expected(split, field)
    vectors = dtype.startswith("float") and ranks - {0}
    classed = dtype in REFUSED and found.name in ("label", "mask") and not vectors
    count = ways.expected(split, field).get("classes")
    # Two classes as float32 are what BCE wants.
    classed |= (
        dtype == SINGLE
        and not vectors
        and (
            (isinstance(count, int) and count > BINARY)
            or (found.name in ("label", "target") and any(part in loss for part in CLASS_LOSSES))
        )
    )
    if any(part in loss for part in REAL_LOSSES):
        real = dtype == DOUBLE and found.name in ("target", "label") and ranks <= {0, 1}
        return (ERROR if real else None), f"{bare(loss)} of a float32 prediction fails in backward"
    if any(part in loss for part in CLASS_LOSSES):
        return (ERROR if classed else None), f"{bare(loss)} takes class labels as int64"
    if not classed or loss:
        return None, ""
    narrow = dtype in NARROW and found.sure("label", at_least=LIKELY) and ranks <= {0}
    narrow = narrow and not _other_label(split, field)
    weak = WARNING if narrow else None
    return (ERROR if classes else weak), "cross_entropy takes class labels as int64"


def _other_label(split: Split, field: str) -> bool:
    """Tell that another field holds labels as the loss takes them: this one may be a group."""
    return any(
        other != field and kind(split, other).sure("label") and {"int64", "int"} & looks
        for other, seen in split.fields.items()
        if (looks := {*seen.dtypes, *seen.types})
    )


def loss_name(split: Split) -> str:
    """Return the name of the declared loss; empty where none is."""
    loss = split.given.get("loss")
    if isinstance(loss, Mapping):
        loss = loss.get("_target_", loss.get("class_path", ""))
    return loss if isinstance(loss, str) else ""


def _doubled(name: str, split: Split, field: str, seen: Field) -> Finding | None:
    batches = split.batch_fields.get(field)
    final = batches or seen
    if set(final.dtypes) != {DOUBLE} or set(seen.dtypes) != {DOUBLE}:
        return None
    if str(ways.expected(split, field).get("dtype", "")).endswith(DOUBLE):
        return None
    found = kind(split, field)
    shapes = [shape for text in seen.shapes if (shape := shape_of(text)) is not None]
    size = min(map(math.prod, shapes), default=0)
    known = found.name in INPUTS if found.sure(found.name) else is_first(split, field)
    if not known or size < LARGE:
        return None
    step, journey = _caster(split, field, DOUBLE)
    file, line = _place(split, step, journey)
    evidence: dict[str, Any] = {
        "dtype": DOUBLE, "bytes": size * 8, "as_float32": size * 4,
        **(ways.step_facts(step) if step else {}),
    }  # fmt: skip
    by = f", since {ways.stage(step)}{ways.at(step)}" if step else ""
    message = (
        f"{named(field)} is float64{by}: {size * 8:,} bytes a sample where float32 takes "
        f"{size * 4:,}, and float32 layers refuse it"
    )
    where = Where(name or None, field, ways.stage(step) if step else None, None, file, line)
    return Finding(message, where, evidence, WARNING)


def _caster(split: Split, field: str, dtype: str) -> tuple[Step | None, Journey | None]:
    """Find the step that gave a field this dtype, in whichever journey has it."""
    for journey in ways.ways(split):
        final = journey.fields.get(field)
        if final is None or final.dtype != dtype:
            continue
        for step in reversed(ways.chain(journey, field)):
            before = step.before
            if step.after.dtype == dtype and (before is None or before.dtype != dtype):
                return step, journey
        return None, journey
    return None, next(iter(ways.ways(split)), None)


def _place(split: Split, step: Step | None, journey: Journey | None) -> ways.Place:
    if step is not None and step.file:
        return step.file, step.line
    file, line = ways.returned(journey)
    return ways.source(split) if line is None else (file, line)
