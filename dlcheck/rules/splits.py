"""DLC310: an evaluation split that is random, or that shares its dataset object with training."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck.findings import WARNING, Finding, NotApplicable, Unobserved, Where, rule
from dlcheck.observation import Observation, Overwrite, Repeat, Split
from dlcheck.rules import ways
from dlcheck.rules.words import bare, base, joined, named, number

EVAL, TRAIN = "eval", "train"
PERCENT = 100


@rule(
    "DLC310",
    severity=WARNING,
    needs="samples",
    title="The evaluation split is random, or shares its dataset object with another split",
    why="A metric of a random evaluation set moves by itself, so epochs and models cannot be "
    "compared; and `val.dataset.transform = ...` on a Subset changes the training split as well, "
    "which then trains without augmentation.",
    fix="Give evaluation a transform without random stages; give each split a dataset object of "
    "its own (two instances, or copy.copy(dataset) before the Subset); declare role: train where "
    "test-time augmentation is meant.",
    yields_to=("pipeline-error",),
)
def eval_random(obs: Observation) -> Iterator[Finding]:
    """Fire where one index of an evaluation split, drawn again, gave another sample.

    Also where the source sets an attribute of a dataset that two splits share for one of them and
    then for the other. Training splits may be random or not.
    """
    findings = [*_random(obs), *_overwritten(obs)]
    if not findings:
        _need_evaluation(obs)
    yield from findings


def _need_evaluation(obs: Observation) -> None:
    evaluation = [s for s in obs.splits.values() if s.role == EVAL]
    if any(split.repeats for split in evaluation):
        return
    if not evaluation:
        raise NotApplicable("no evaluation split")
    if all(s.loader is not None and s.loader.kind == "iterable" for s in evaluation):
        raise NotApplicable("the evaluation split is a stream: no sample can be drawn again")
    reason = str(obs.settings.get("probe") or "")
    if reason:
        raise Unobserved(reason)
    raise NotApplicable("no sample of the evaluation split was drawn again")


def _random(obs: Observation) -> Iterator[Finding]:
    for name, split in obs.splits.items():
        if split.role != EVAL:
            continue
        fields = dict.fromkeys(f for one in split.repeats.values() for f in one.fields)
        differing = [one for one in split.repeats.values() if one.fields]
        if differing:
            yield _random_finding(obs, name, split, differing, list(fields))


def _random_finding(
    obs: Observation, name: str, split: Split, differing: list[Repeat], fields: list[str]
) -> Finding:
    traced = next((one for one in differing if one.step is not None), differing[0])
    step = traced.step
    field = next(iter(traced.fields), fields[0])
    shares = traced.fields[field]
    file, line = (step.file, step.line) if step else _place(split, traced)
    stage = ways.stage(step) if step else None
    shared = [o for o in split.shared_with if o in obs.splits]
    evidence = {
        "fields": {f: dict(traced.fields.get(f, {})) for f in fields},
        "samples": [one.sample for one in differing],
        "drawn": len(split.repeats),
        "shared_with": shared,
        **(ways.step_facts(step) if step else {}),
    }
    by = f": {stage}{ways.at(step)} is random" if step else ""
    most = shares.get("most")
    far = f", by up to {number(most)}" if most is not None else ""
    message = (
        f"{named(field)} of split {name or 'eval'} differs when sample {traced.sample} is drawn "
        f"again ({number(PERCENT * shares['share'])} % of its elements{far}){by}"
    )
    if shared:
        message += f"; its dataset object is that of split {joined(shared)} as well"
    where = Where(name or None, field, stage, traced.sample, file, line)
    return Finding(message, where, evidence)


def _place(split: Split, one: Repeat) -> ways.Place:
    way = split.journeys.get(str(one.sample))
    file, line = ways.returned(way)
    if line is None and split.loader is not None:
        return split.loader.file, split.loader.line
    return file, line


def _overwritten(obs: Observation) -> Iterator[Finding]:
    """Yield each line that overwrites once, for the training split where it concerns it."""
    told: set[tuple[str, int]] = set()
    splits = sorted(obs.splits.items(), key=lambda item: item[1].role != TRAIN)
    for name, split in splits:
        for one in split.overwritten:
            if (one.file, one.line) not in told:
                told.add((one.file, one.line))
                yield _overwrite_finding(name, split, one)


def _overwrite_finding(name: str, split: Split, one: Overwrite) -> Finding:
    dataset = bare(split.loader.dataset) if split.loader else ""
    message = (
        f"`{one.text}` ({base(one.file)}:{one.line}) changes {one.victim} as well: both are parts "
        f"of one {dataset or 'dataset'} object, so what line {one.first_line} gave it "
        f"(`{one.first_text}`) is lost"
    )
    evidence = {
        "attribute": one.attribute,
        "set_by": one.text,
        "lost": one.first_text,
        "lost_line": one.first_line,
        "function": one.function,
        "shared_with": list(split.shared_with),
        "held": one.held,
    }
    where = Where(
        name or None, stage=f"{one.function} ({one.text})", file=one.file, line=one.line,
        attribute=f"{one.by}.dataset.{one.attribute}",
    )  # fmt: skip
    return Finding(message, where, evidence)
