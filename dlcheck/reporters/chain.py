"""A split's pipeline as a chain of stages, from the file to the training step, for a picture."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlcheck.findings import NOTE, Finding
from dlcheck.observation import Field, Journey, Loader, ModelRun, Split, Step, shape_text
from dlcheck.observation.pictures import OF_BATCH, picture_key
from dlcheck.observation.steps import Steps, Trial
from dlcheck.reporters import batch, counted
from dlcheck.reporters.blame import guilty, on_line, whole_sample
from dlcheck.reporters.journey import base, cells, span
from dlcheck.reporters.stages import Blame, Chain, Stage

MOST_FIELDS = 3
MOST_WAYS = 4
MOST_STAGES = 24
MOST_NAMED = 3
MOST_DETAIL = 300


@dataclass
class _Draft:
    """A chain before it is known which of its stages bear a finding."""

    field: str
    chain: Chain
    returned: tuple[object, ...] = ()
    shown: bool = False


Numbered = Sequence[tuple[int, Finding]]


def chains(name: str, split: Split, findings: Sequence[Finding]) -> list[Chain]:
    """Draw a usual sample of a split, and those samples and fields that findings speak of."""
    numbered = [
        (number, one) for number, one in enumerate(findings, 1) if one.where.split in (None, name)
    ]
    drafts = list(_drafts(split, numbered))
    marks: dict[tuple[int, int], list[Blame]] = {}
    for number, finding in numbered:
        severity = NOTE if finding.severity is None else finding.severity
        mark = Blame(number, finding.rule or finding.code, severity.label)
        for place in _places(drafts, finding, split):
            marks.setdefault(place, []).append(mark)
    return [
        _marked(draft.chain, {at: found for (n, at), found in marks.items() if n == number})
        for number, draft in enumerate(drafts)
        if draft.shown or any(n == number for n, _ in marks)
    ]


def _drafts(split: Split, numbered: Numbered) -> Iterator[_Draft]:
    wanted = {one.where.field for _, one in numbered if one.where.field}
    told: set[str] = set()
    for journey in _chosen(split, numbered):
        first = not told
        for field in _fields(journey, wanted):
            stages = tuple(_stages(split, journey, field))
            broad = not field or len(journey.fields[field].shape or ()) > 1
            shown = not told or (first and broad) or journey.failure is not None
            told.add(field)
            chain = Chain(_title(journey, field), stages, journey.note)
            yield _Draft(field, chain, journey.returned, shown)
    known = [] if told else (_largest(split) or [""] if split.loader or split.fields else [])
    for field in [*known, *sorted(wanted & set(split.fields) - told - set(known))]:
        stages = (*_unseen(split, field), *_ending(split, field))
        title = "one sample" + (f", {field}" if field else "")
        yield _Draft(field, Chain(title, stages), shown=field in known)


def _places(drafts: Sequence[_Draft], finding: Finding, split: Split) -> Iterator[tuple[int, int]]:
    """Yield the chain and stage of a finding; where its own field has none, one on its line."""
    field = finding.where.field
    own = [n for n, draft in enumerate(drafts) if not field or draft.field in ("", field)]
    found = [
        (n, at)
        for n in own
        if (at := guilty(drafts[n].chain.stages, finding, split, drafts[n].returned)) is not None
    ]
    if found:
        yield from found
        return
    lined = [(n, on_line(draft.chain.stages, finding)) for n, draft in enumerate(drafts)]
    whole = [(n, whole_sample(drafts[n].chain.stages)) for n in own if field]
    yield from [(n, at) for n, at in [*lined, *whole] if at is not None][:1]


def _marked(chain: Chain, marks: Mapping[int, Sequence[Blame]]) -> Chain:
    stages = tuple(
        dataclasses.replace(stage, blames=tuple(marks.get(number, ())))
        for number, stage in enumerate(chain.stages)
    )
    return dataclasses.replace(chain, stages=stages)


def _title(journey: Journey, field: str) -> str:
    if journey.failure is not None:
        return f"sample {journey.sample}, which could not be made"
    return f"sample {journey.sample}" + (f", {field}" if field else "")


def _chosen(split: Split, numbered: Sequence[tuple[int, Finding]]) -> list[Journey]:
    """Choose a usual sample first, then those that failed or that findings name."""
    drawn = {k: j for k, j in split.journeys.items() if k != OF_BATCH and (j.steps or j.failure)}
    usual = [j for j in drawn.values() if j.failure is None and j.reproduced is not False]
    usual.sort(key=lambda j: not _pictured(split, j))
    accused = [str(finding.where.sample) for _, finding in numbered]
    named = [drawn[key] for key in dict.fromkeys(accused) if key in drawn]
    failed = [j for j in drawn.values() if j.failure is not None]
    chosen = {str(journey.sample): journey for journey in [*usual[:1], *named, *failed]}
    return list(chosen.values())[:MOST_WAYS]


def _pictured(split: Split, journey: Journey) -> bool:
    return any(picture_key(journey.sample, n) in split.pictures for n in range(len(journey.steps)))


def _fields(journey: Journey, wanted: Collection[str]) -> list[str]:
    """Choose the largest arrays that steps led to, and those wanted; a failed way has no fields."""
    if journey.failure is not None:
        return [""]
    led_to = {field for step in journey.steps for field in step.fields} & set(journey.fields)
    sizes = {field: math.prod(journey.fields[field].shape or ()) for field in led_to}
    arrays = sorted((f for f in led_to if journey.fields[f].shape), key=lambda f: (-sizes[f], f))
    return [*arrays[:MOST_FIELDS], *sorted(led_to & set(wanted) - set(arrays[:MOST_FIELDS]))]


def _largest(split: Split) -> list[str]:
    """Choose, where nothing was traced, the fields whose arrays have the most axes."""
    arrays = {
        f: max(s.count("x") for s in one.shapes) for f, one in split.fields.items() if one.shapes
    }
    ranked = sorted((f for f in arrays if arrays[f]), key=lambda field: -arrays[field])
    return ranked[:MOST_FIELDS]


def _stages(split: Split, journey: Journey, field: str) -> list[Stage]:
    failed = journey.failure is not None
    steps = [
        (number, step)
        for number, step in enumerate(journey.steps)
        if failed or field in step.fields
    ]
    total = sum(step.seconds for _, step in steps) or 1.0
    made = [_stage(split, journey, number, step, total) for number, step in steps]
    kept = _shortened(made)
    start = list(_files(journey, [step for _, step in steps]))
    if not start:
        start += _dataset(split.loader)
        first = steps[0][1].before if steps else None
        start += [] if first is None else [Stage("sample", "start", looks=cells(first))]
    return [*start, *kept, *([_raised(journey)] if failed else _ending(split, field))]


def _files(journey: Journey, steps: Sequence[Step]) -> Iterator[Stage]:
    """Yield the file that the field was read from: the one opened on a line of its way."""
    lines = {(step.file, step.line) for step in steps}
    own = [one for one in journey.opened if (one.file, one.line) in lines] or journey.opened
    for one in own[:1]:
        shape = "" if one.shape is None else shape_text(one.shape)
        words = [one.mode and f"the file holds {one.mode}", one.order and f"read as {one.order}"]
        place = "" if not one.file else f"{base(one.file)}:{one.line}"
        left = len(journey.opened) - 1
        more = f"and {left} more file{'' if left == 1 else 's'}" if left else ""
        yield Stage(
            "file", base(one.path), (shape, "", "", ""),
            detail=", ".join(filter(None, [f"by {one.by}", *words, more])), place=place,
            code=one.path, file=one.file or "", line=one.line or 0,
        )  # fmt: skip


def _stage(split: Split, journey: Journey, number: int, step: Step, total: float) -> Stage:
    looks = cells(step.after)
    before = looks if step.before is None else cells(step.before)
    changed = tuple(a != b for a, b in zip(before, looks, strict=True))
    return Stage(
        "stage", step.stage or step.text.strip(), looks, (*changed,),  # type: ignore[arg-type]
        detail=step.parameters, place=f"{base(step.file)}:{step.line}",
        code=step.text.strip(), file=step.file, line=step.line, seconds=step.seconds,
        share=step.seconds / total, picture=split.pictures.get(picture_key(journey.sample, number)),
    )  # fmt: skip


def _shortened(stages: list[Stage]) -> list[Stage]:
    """Leave the middle of a long way out."""
    if len(stages) <= MOST_STAGES:
        return stages
    half = MOST_STAGES // 2
    left = len(stages) - 2 * half
    return [*stages[:half], Stage("gap", f"{left} more stages"), *stages[-half:]]


def _raised(journey: Journey) -> Stage:
    failure = journey.failure
    assert failure is not None  # noqa: S101 - only called for one
    frame = failure.user_frame
    return Stage(
        "raised", f"{journey.failed_stage or 'the code'} raised",
        cells(journey.failed_state) if journey.failed_state else ("", "", "", ""),
        detail=f"{failure.exception}: {failure.message}"[:MOST_DETAIL],
        place=f"{base(frame.file)}:{frame.line}" if frame else "",
        code=frame.text.strip() if frame else "",
        file=frame.file if frame else "", line=frame.line if frame else 0,
    )  # fmt: skip


def _dataset(loader: Loader | None) -> Iterator[Stage]:
    """Yield the dataset as the source of a sample for which no file was opened."""
    if loader is not None and loader.dataset:
        place = f"{base(loader.dataset_file)}:{loader.dataset_line}" if loader.dataset_file else ""
        length = "a stream" if loader.kind == "iterable" else ""
        if loader.dataset_length is not None:
            length = counted.count(loader.dataset_length, "sample")
        yield Stage("file", _last(loader.dataset), detail=length, place=place)


def _unseen(split: Split, field: str) -> Iterator[Stage]:
    """Yield what is known of a sample whose way was not traced."""
    yield from _dataset(split.loader)
    known = split.fields.get(field)
    if known is not None:
        told = any(field in one.fields for one in split.journeys.values())
        why = "no stage changed it" if told else "its stages were not traced"
        yield Stage("sample", "the sample", _seen(known), detail=why)


def _ending(split: Split, field: str) -> Iterator[Stage]:
    """Yield what the user's collate does, the batch and what takes it."""
    collate = split.journeys.get(OF_BATCH)
    if collate is not None:
        steps = [one for one in collate.steps if field in one.fields]
        total = sum(step.seconds for step in steps) or 1.0
        yield from _shortened([_stage(split, collate, -1, one, total) for one in steps])
    if split.loader is not None:
        yield _batch(split, split.loader, field)
    yield _taker(split)


def _batch(split: Split, loader: Loader, field: str) -> Stage:
    known = split.batch_fields.get(field)
    seen = split.fields.get(field)
    looks = ("", "", "", "") if known is None else _seen(known)
    if not looks[3] and known is not None and seen is not None:
        looks = (*looks[:3], _seen(seen)[3])
    words = [f"batch size {loader.batch_size}"] if loader.batch_size else []
    words += [f"{loader.num_workers} workers" if loader.num_workers else "no workers"]
    words += [] if split.batches else ["no batch was made"]
    title = _last(loader.collate or "") or _last(loader.cls) or "the loader"
    place = f"{base(loader.file)}:{loader.line}" if loader.file else ""
    return Stage(
        "batch", title, looks, (True, False, False, False), ", ".join(words), place,
        file=loader.file or "", line=loader.line or 0,
        picture=split.pictures.get(picture_key(OF_BATCH, 0)),
    )  # fmt: skip


def _taker(split: Split) -> Stage:
    """Say what the batch goes to: the model, the step, or what the config does not say."""
    step, model = split.given.get("step"), split.given.get("model")
    named = _named(step or model)
    refusals = [one for one in split.trials if one.failure or one.wanted]
    if refusals:
        return _refused(refusals[0], named, split)
    if split.model_run is not None and not step:
        return _model(split.model_run, named)
    if step or model:
        return Stage("model", named or "training step", detail=_done(split.steps))
    return Stage("model", "training step", detail="the config names no model and no step")


def _refused(trial: Trial, named: str, split: Split) -> Stage:
    failure = split.failures.get(trial.failure)
    words = _quarrel(trial.layer or trial.loss, trial) or (failure.message if failure else "")
    shape = shape_text(trial.shape) if trial.shape else ""
    title = named or "training step"
    return Stage("refused", title, (shape, trial.dtype, "", ""), detail=words[:MOST_DETAIL])


def _quarrel(who: str, one: ModelRun | Trial) -> str:
    """Say who refused what: `conv1 (Conv2d) wants 3 channels, got 1`."""
    layer = f"{who or 'the model'} ({one.kind})" if one.kind else who
    return f"{layer} wants {one.wanted} {one.about}, got {one.got}" if one.wanted else layer


def _done(steps: Steps | None) -> str:
    """Say what the user's step did."""
    if steps is None or not steps.calls:
        return "not run on a batch"
    calls = f"called {counted.count(steps.calls, 'time')}"
    backwards = counted.count(steps.backwards, "backward pass")
    return f"{calls}, {backwards}, {counted.count(steps.updates, 'update')}"


def _model(run: ModelRun, named: str) -> Stage:
    refused = run.failure is not None or bool(run.wanted and run.got)
    words = run.reason or ("" if refused else "takes the batch")
    if refused:
        words = _quarrel(run.layer, run) or (run.failure.message if run.failure else "")
    shape = shape_text(run.shape) if run.shape else ""
    looks = (shape, run.dtype, "", "")
    return Stage(
        "refused" if refused else "model", named or "model", looks, detail=words[:MOST_DETAIL]
    )


def _named(given: object) -> str:
    """Name what a config builds or calls, in its last words."""
    if isinstance(given, dict):
        given = given.get("_target_") or given.get("class_path") or ""
    return _last(str(given)) if given else ""


def _seen(field: Field) -> tuple[str, str, str, str]:
    dtypes = " or ".join(sorted(field.dtypes or field.types)[:MOST_NAMED])
    known = field.low is not None and field.high is not None
    ends = span(field.low or 0.0, field.high or 0.0) if known else ""
    return batch.shape(field), dtypes, "", ends


def _last(dotted: str) -> str:
    return dotted.replace(":", ".").rpartition(".")[2]
