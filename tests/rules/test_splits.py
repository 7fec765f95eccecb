"""DLC310 on recorded Observations."""

from __future__ import annotations

import dataclasses
from typing import Any

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import WARNING, Finding, RuleState, judge
from dlcheck.observation import (
    Loader,
    Observation,
    Overwrite,
    Repeat,
    SampleId,
    Split,
    State,
    Step,
)

LOADER = Loader(cls="DataLoader", file="train.py", line=90, kind="map", dataset="data.Photos")
STATE = State("Tensor", "float32", (3, 64, 64), "CHW")
FLIP = Step("data.py", 36, "__getitem__", "self.tf(x)", "x", "RandomHorizontalFlip", STATE,
            parameters="p=0.5", container="Compose", position=1, fields=("image",))  # fmt: skip
OVERWRITE = Overwrite(
    "transform", "val", "train", "get_dataset", "data.py", 45, "val.dataset.transform = val_aug",
    44, "train.dataset.transform = train_aug",
)  # fmt: skip


def evaluated(*repeats: Repeat, **known: Any) -> Split:
    base: dict[str, Any] = {"role": "eval", "loader": LOADER, "samples": 20, "batches": 3}
    return Split(**base | known, repeats={str(r.sample): r for r in repeats})


def judged(**splits: Split) -> tuple[list[Finding], RuleState]:
    findings, states = judge(Observation(splits=splits), select=["eval-random"])
    return list(findings), next(s for s in states if s.rule == "eval-random")


def differing(sample: SampleId, step: Step | None = FLIP) -> Repeat:
    return Repeat(sample, 2, {"image": {"share": 0.93, "most": 1.5}}, step)


def test_names_split_field_sample_stage_and_how_much() -> None:
    (finding,), _ = judged(val=evaluated(Repeat(0, 8), differing(6)))
    assert finding.severity == WARNING
    where = finding.where
    assert (where.split, where.field, where.sample, where.line) == ("val", "image", 6, 36)
    assert where.stage == "RandomHorizontalFlip(p=0.5)"
    assert "93 % of its elements, by up to 1.5" in finding.message


def test_without_a_step_the_loader_is_the_place() -> None:
    (finding,), _ = judged(val=evaluated(differing(6, None)))
    assert (finding.where.file, finding.where.line) == ("train.py", 90)


def test_equal_draws_are_no_fault() -> None:
    findings, state = judged(val=evaluated(Repeat(0, 8), Repeat(7, 8)))
    assert (findings, state.state) == ([], "ran")


def test_training_may_be_random_or_not() -> None:
    findings, state = judged(train=evaluated(differing(0), role="train"))
    assert (findings, state.state) == ([], "not-applicable")


def test_stream_is_not_judged() -> None:
    stream = dataclasses.replace(LOADER, kind="iterable")
    _, state = judged(val=evaluated(loader=stream))
    assert (state.state, "stream" in state.reason) == ("not-applicable", True)


def test_shared_object_names_attribute_and_both_lines_once() -> None:
    train = evaluated(role="train", overwritten=(OVERWRITE,), shared_with=("val",))
    val = evaluated(overwritten=(OVERWRITE,), shared_with=("train",))
    (finding,), _ = judged(val=val, train=train)
    where = finding.where
    assert (where.split, where.file, where.line) == ("train", "data.py", 45)
    assert where.attribute == "val.dataset.transform"
    assert "`train.dataset.transform = train_aug`" in finding.message


def test_shared_object_alone_is_no_fault() -> None:
    train = evaluated(role="train", shared_with=("val",))
    findings, _ = judged(train=train, val=evaluated(Repeat(0, 8), shared_with=("train",)))
    assert findings == []
