"""DLC1: whether samples can be read and joined, and the batch is what the model takes."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dlcheck.findings import ERROR, WARNING, Finding, NotApplicable, Where, rule
from dlcheck.observation import (
    Failure,
    Field,
    Loader,
    Observation,
    SampleId,
    Split,
    Structure,
    Tally,
    sample_order,
    shape_of,
)
from dlcheck.rules import parting, ways
from dlcheck.rules.collate import (
    ANNOTATIONS,
    MISSING,
    SHAPE,
    STRUCTURE,
    UNCOLLATABLE,
    Cause,
    cause_of,
    minority,
)
from dlcheck.rules.words import bare, joined, named, some

MADE_BY_DLCHECK = "made by dlcheck"
MOST_KINDS = 4
MOST_NAMED = 3
MOST_TEXT = 500
# Samplers that give each index of the dataset once, so that len(dataset) tells the last batch.
PLAIN_SAMPLERS = {"RandomSampler", "SequentialSampler"}


@rule(
    "DLC101",
    severity=ERROR,
    needs="samples",
    title="Samples of one batch differ in shape",
    why="A batch is one tensor, so its samples must have one shape; the first batch that mixes "
    "two shapes ends the epoch.",
    fix="Bring every sample to one shape (Resize((h, w)) rather than Resize(s), a crop that pads, "
    "a fixed window), or pass a collate_fn that pads.",
    yields_to=("channel-count-varies",),
)
def ragged_batch(obs: Observation) -> Iterator[Finding]:
    """Fire where the collate could not join samples because their shapes differ."""
    for name, split, cause, failures in causes(obs, SHAPE):
        axes = _unequal_axes(cause)
        evidence = {
            "shapes": _shapes(cause),
            "axes": axes,
            "seen": _seen_shapes(split.fields.get(cause.field)),
            **_batch_evidence(cause, split, failures),
        }
        place = f" (axis {joined(axes)})" if axes else " (another number of axes)"
        message = (
            f"{named(cause.field)} has {len(cause.kinds)} shapes in one batch{place}: "
            f"{_list_kinds(cause)}; {_collate(split)} cannot stack them"
        )
        finding = _finding(message, name, split, cause, failures, evidence)
        yield _with_stage(finding, split, cause)


@rule(
    "DLC103",
    severity=ERROR,
    needs="samples",
    title="Samples differ in structure",
    why="A batch takes its keys, its length and its types from the first sample; samples built "
    "otherwise break it, or lose what the first one lacks.",
    fix="Return the same keys, the same number of items and the same types from every branch of "
    "__getitem__, or handle what is optional in a collate_fn.",
)
def structure_varies(obs: Observation) -> Iterator[Finding]:
    """Fire where keys, tuple lengths, nesting or types differ between samples.

    An error where the collate failed on them; a warning where default_collate has only dropped
    keys, or has not met two kinds in one batch yet.
    """
    judged = set()
    for name, split, cause, failures in causes(obs, STRUCTURE):
        judged.add(name)
        evidence = {"kinds": _kinds(cause), **_batch_evidence(cause, split, failures)}
        message = (
            f"{named(cause.field)} differs between the samples of one batch: "
            f"{_list_kinds(cause)}; {_collate(split)} needs one structure"
        )
        yield _finding(message, name, split, cause, failures, evidence)
    for name, split in obs.splits.items():
        if name not in judged and not any(f.phase == "collate" for f in split.failures.values()):
            yield from _optional_keys(name, split)


@rule(
    "DLC104",
    severity=ERROR,
    needs="samples",
    title="A sample holds something that cannot be batched",
    why="default_collate joins tensors, numeric arrays, numbers and strings in dicts, lists and "
    "tuples; it refuses None, PIL images, paths, object arrays and classes of your own.",
    fix="Return a tensor, array, number or string (ToTensor for images, str(path) for paths), drop "
    "unreadable items when the index is built, or pass a collate_fn that takes the type.",
)
def uncollatable_type(obs: Observation) -> Iterator[Finding]:
    """Fire where a value of a type that the collate refuses reached it."""
    for name, split, cause, failures in causes(obs, UNCOLLATABLE):
        kind, ids = next(iter(cause.kinds.items()))
        evidence = {
            "type": kind,
            "count": len(ids),
            "samples": list(ids[:MOST_NAMED]),
            **_batch_evidence(cause, split, failures),
        }
        size = len(failures[0].samples)
        message = (
            f"{named(cause.field)} is {_list_kinds(cause)} in a batch of {size}; "
            f"{_collate(split)} cannot batch that"
        )
        yield _finding(message, name, split, cause, failures, evidence)


@rule(
    "DLC106",
    severity=ERROR,
    needs="samples",
    title="Samples hold different numbers of annotations",
    why="Boxes, tokens and points vary in number from sample to sample, so they do not stack.",
    fix="Pass a collate_fn that keeps them as a list (lambda batch: tuple(zip(*batch)) as a named "
    "function), or that pads them (torch.nn.utils.rnn.pad_sequence).",
)
def ragged_annotations(obs: Observation) -> Iterator[Finding]:
    """Fire where the collate could not join samples because the number of items in a field varies.

    These are lists, 1-D integer tensors and short rows (N, k); all else is ragged-batch.
    """
    for name, split, cause, failures in causes(obs, ANNOTATIONS):
        evidence = {
            "lengths": _shapes(cause),
            "seen": _seen_shapes(split.fields.get(cause.field)),
            **_batch_evidence(cause, split, failures),
        }
        message = (
            f"{named(cause.field)} has another number of items from sample to sample: "
            f"{_list_kinds(cause)}; {_collate(split)} cannot join them"
        )
        yield _finding(message, name, split, cause, failures, evidence)


@rule(
    "DLC109",
    severity=WARNING,
    needs="loader",
    title="The last training batch holds one sample",
    why="BatchNorm in training refuses a batch of one where it has one value per channel, and "
    "squeeze() drops the batch axis; the gradient of one sample is noise.",
    fix="Pass drop_last=True, or choose a batch_size that does not leave one sample over.",
)
def small_last_batch(obs: Observation) -> Iterator[Finding]:
    """Fire where len(dataset) leaves one sample over; an error when the model's BatchNorm refuses.

    `full_length` stands in for len(dataset) when the data is a subset.
    """
    reasons = {name: _no_last_batch(s) for name, s in obs.splits.items() if s.loader}
    if all(reasons.values()):
        raise NotApplicable("; ".join(dict.fromkeys(reasons.values())))
    for name, reason in reasons.items():
        split = obs.splits[name]
        if split.loader and not reason and _leaves_one(split, split.loader, _full(obs, name)):
            yield _small_finding(name, split, split.loader, _full(obs, name))


def causes(obs: Observation, slug: str) -> Iterator[tuple[str, Split, Cause, Sequence[Failure]]]:
    """Yield the collate failures of each split that `slug` explains, one group a field."""
    for name, split in obs.splits.items():
        groups: dict[str, list[tuple[Cause, Failure]]] = {}
        for failure in split.failures.values():
            cause = cause_of(failure)
            if cause and cause.rule == slug:
                groups.setdefault(cause.field, []).append((cause, failure))
        for group in groups.values():
            group.sort(key=lambda pair: (pair[1].epoch, -len(pair[1].samples)))
            yield name, split, group[0][0], [failure for _, failure in group]


def _finding(  # noqa: PLR0913, PLR0917 - what four rules share, each with its own words
    message: str,
    name: str,
    split: Split,
    cause: Cause,
    failures: Sequence[Failure],
    evidence: dict[str, Any],
) -> Finding:
    odd = cause.kinds[minority(cause.kinds)][0]
    file, line = _guilty_line(split, failures[0], odd)
    where = Where(split=name or None, field=cause.field, sample=odd, file=file, line=line)
    return Finding(message, where, evidence, explains=frozenset(f.key for f in failures))


def _with_stage(finding: Finding, split: Split, cause: Cause) -> Finding:
    """Point at the stage after which the samples differ, where their journeys tell."""
    found = parting.parting(split, cause)
    step = (found.step or found.usual_step) if found else None
    if found is None or step is None:
        return finding
    where = dataclasses.replace(
        finding.where, stage=ways.stage(step), file=step.file, line=step.line
    )
    told = parting.told(found)
    message = f"{finding.message}. First apart: {told}"
    evidence = {**finding.evidence, "apart": told, "container": step.container}
    return dataclasses.replace(finding, message=message, where=where, evidence=evidence)


def _guilty_line(
    split: Split, failure: Failure, odd: SampleId | None
) -> tuple[str | None, int | None]:
    """Where to look: the return that made the odd sample, the user's collate, the DataLoader."""
    file, line = ways.returned(ways.way_of(split, odd))
    if line is not None:
        return file, line
    frame = failure.user_frame
    if frame and not failure.detail.get("default_collate"):
        return frame.file, frame.line
    loader = split.loader or Loader()
    if loader.line is None:
        return loader.dataset_file, loader.dataset_line
    return loader.file, loader.line


def _batch_evidence(cause: Cause, split: Split, failures: Sequence[Failure]) -> dict[str, Any]:
    failure = failures[0]
    return {
        "other_fields": list(cause.others),
        "batch": list(failure.batch),
        "of": len(failure.samples),
        "failed_batches": sum(f.count for f in failures),
        "collate": _collate(split),
        "exception": failure.exception,
        "error": failure.message[:MOST_TEXT],
    }


def _collate(split: Split) -> str:
    loader = split.loader or Loader(default_collate=True)
    if loader.default_collate:
        return "default_collate"
    return bare(loader.collate) or "the collate function"


def _kinds(cause: Cause) -> list[dict[str, Any]]:
    return [
        {"type": kind, "count": len(ids), "samples": list(ids[:MOST_NAMED])}
        for kind, ids in cause.kinds.items()
    ]


def _shapes(cause: Cause) -> list[dict[str, Any]]:
    return [
        {"shape": list(shape_of(kind) or ()), "count": len(ids), "samples": list(ids[:MOST_NAMED])}
        for kind, ids in cause.kinds.items()
    ]


def _seen_shapes(field: Field | None) -> dict[str, dict[str, Any]]:
    """Count the shapes over all samples that were read, not this batch alone."""
    shapes = field.shapes if field else {}
    return {shape: {"count": t.n, "samples": list(t.at)} for shape, t in shapes.items()}


def _unequal_axes(cause: Cause) -> list[int]:
    """Axes on which the shapes differ; none when they have different numbers of axes."""
    shapes = [shape_of(kind) or () for kind in cause.kinds]
    if len({len(shape) for shape in shapes}) > 1:
        return []
    return [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1]


def _list_kinds(cause: Cause) -> str:
    """Render `3x64x64 (5 samples, e.g. 3), 3x64x48 (1 sample: 12)`; the odd one is always there."""
    kinds = sorted(cause.kinds.items(), key=lambda item: -len(item[1]))
    shown = kinds[:MOST_KINDS]
    odd = minority(cause.kinds)
    if odd not in dict(shown):
        shown = [*shown[:-1], (odd, cause.kinds[odd])]
    parts = [f"{kind} ({some(len(ids), ids)})" for kind, ids in shown]
    more = len(kinds) - len(shown)
    return joined(parts) + (f" and {more} more" if more else "")


def _optional_keys(name: str, split: Split) -> Iterator[Finding]:
    """Find keys that some samples lack, where default_collate keeps those of a batch's first."""
    loader = split.loader
    mixing = loader and loader.default_collate and loader.batch_sampler in {None, "BatchSampler"}
    if not loader or not mixing or (loader.batch_size or 1) < 2:  # noqa: PLR2004 - a pair can differ
        return
    for path, lacking in _lacking(split.structures.values()).items():
        having = split.fields[path].n if path in split.fields else split.samples - lacking.n
        cause = Cause(STRUCTURE, path, {MISSING: lacking.at})
        message = (
            f"{named(path)} is {MISSING} in {some(lacking.n, lacking.at)}, and present in "
            f"{having}; default_collate keeps only the keys of the first sample of a batch"
        )
        evidence = {
            "kinds": [{"type": MISSING, "count": lacking.n, "samples": list(lacking.at)}],
            "present": having,
            "collate": _collate(split),
        }
        odd = min(cause.kinds[MISSING], key=sample_order, default=None)
        where = Where(name or None, path, sample=odd, file=loader.file, line=loader.line)
        yield Finding(message, where, evidence, severity=WARNING)


def _lacking(structures: Iterable[Structure]) -> dict[str, Tally]:
    """Map each key of a dict that some samples lack to those samples; the outermost keys only."""
    known = list(structures)
    keys = {
        path: path.rpartition(".")[0]
        for structure in known
        for path in structure.paths
        if path and structure.paths.get(path.rpartition(".")[0]) == "dict"
    }
    lacking: dict[str, Tally] = {}
    for path, parent in keys.items():
        for structure in known:
            if structure.paths.get(parent) == "dict" and path not in structure.paths:
                lacking[path] = lacking.get(path, Tally()).merge(structure.seen)
    return lacking


def _no_last_batch(split: Split) -> str:
    """Why a split has no last batch of another size; empty when it may have one."""
    loader = split.loader or Loader()
    if any(note.startswith(MADE_BY_DLCHECK) for note in loader.notes):
        return "the target is a dataset, its loader not the user's"
    if split.role != "train":
        return "evaluation takes a batch of any size"
    if loader.kind != "map":
        return "no map-style DataLoader, so no known last batch"
    if loader.batch_sampler not in {None, "BatchSampler"}:
        return "the batches are those of a batch_sampler"
    if loader.batch_size is None or loader.batch_size == 1:
        return f"batch_size is {loader.batch_size}"
    return "drop_last" if loader.drop_last else ""


def _full(obs: Observation, name: str) -> int | None:
    full: Any = obs.settings.get("full_length")
    return full.get(name) if isinstance(full, Mapping) else full


def _leaves_one(split: Split, loader: Loader, full: int | None) -> bool:
    size, length = loader.batch_size or 1, full or loader.dataset_length
    if not full and split.finished_epochs and split.batch_sizes:
        return "1" in split.batch_sizes
    if loader.sampler is not None and loader.sampler not in PLAIN_SAMPLERS:
        return False
    # A sampler with num_samples= gives another number of batches than the dataset would.
    known = full or loader.length in {None, math.ceil((length or 0) / size)}
    return length is not None and length % size == 1 and bool(known)


def _small_finding(name: str, split: Split, loader: Loader, full: int | None) -> Finding:
    size, length = loader.batch_size or 1, full or loader.dataset_length or 0
    what = "full_length" if full else f"len({bare(loader.dataset) or 'dataset'})"
    count = f"{what} {length} with batch_size {size} leaves a last batch of 1 sample"
    refused = split.batchnorm
    quote = f"{refused.exception}: {refused.message}"[:MOST_TEXT] if refused else ""
    tail = f", which the model's BatchNorm refuses ({quote})" if refused else ""
    sizes = Counter({key: tally.n for key, tally in split.batch_sizes.items()})
    evidence = {
        "length": length,
        "batch_size": size,
        "last_batch": 1,
        "batch_sizes": dict(sizes),
        "model_error": quote,
        "cures": ["drop_last=True", "another batch_size"],
    }
    where = Where(name or None, attribute="batch_size", file=loader.file, line=loader.line)
    return Finding(count + tail, where, evidence, severity=ERROR if refused else None)
