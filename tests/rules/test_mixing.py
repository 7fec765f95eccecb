from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, Finding, judge
from dlcheck.observation import Field, Journey, Loader, Mix, Observation, Split, State, Step, Tally

IMAGES = State("Tensor", "float32", (8, 3, 64, 64), "", 0.0, 1.0, 0.4, std=0.3)
KEPT = Mix("0", 0, "mixup", (3, 5), 0.6, "1", "kept", telling=True)
SOFT = Mix("0", 0, "mixup", (3, 5), 0.6, "1", "soft", (3, 5), 0.6, 0.0, 1.0, 1.0, telling=True)


def seen(*mixes: Mix, labels: Field | None = None, **given: Any) -> Observation:
    mixed = Step(
        "data.py", 18, "collate", "x = a * x + b * x[p]", "x", "+",
        dataclasses.replace(IMAGES, std=0.2), IMAGES, fields=("0",),
    )  # fmt: skip
    batch = Journey("batch", (mixed,), {"0": IMAGES}, returned=("data.py", 20), mixes=mixes)
    way = Journey(0, (), {"0": IMAGES})
    fields = {"1": labels or Field(types={"int": Tally(40)}, low=0, high=2)}
    split = Split(loader=Loader(collate="data.Mix"), samples=40, batches=1, of=40, given=given,
                  journeys={"0": way, "batch": batch}, fields=fields)  # fmt: skip
    return Observation(splits={"": split})


def found(obs: Observation) -> list[Finding]:
    return list(judge(obs, select=["soft-label"])[0])


def test_labels_that_were_kept_are_an_error_at_the_line_that_mixes():
    (finding,) = found(seen(KEPT))
    assert (finding.severity, finding.where.line, finding.where.field) == (ERROR, 18, "1")
    assert finding.evidence["mixed"][0]["lam"] == 0.6
    assert finding.where.stage == "Mix"


WRONG = {
    "another sample": dataclasses.replace(SOFT, target_of=(3, 7), off=0.4),
    "another share": dataclasses.replace(SOFT, target_weight=0.8, off=0.2),
    "the first alone": dataclasses.replace(SOFT, target_weight=1.0, off=0.4),
    "nothing that was found": dataclasses.replace(SOFT, target_of=(), target_weight=None, off=0.4),
    "a sum of its own": dataclasses.replace(SOFT, total=1.4, off=0.3),
}


@pytest.mark.parametrize("mix", WRONG.values(), ids=WRONG)
def test_labels_of_another_mixture_are_an_error(mix):
    (finding,) = found(seen(mix))
    assert finding.severity == ERROR
    assert "0.60 of sample 3" in finding.message


RIGHT = {
    "the same mixture": SOFT,
    "a rounding": dataclasses.replace(SOFT, off=0.02),
    "the edge of a patch": dataclasses.replace(SOFT, how="cutmix", off=0.04),
    "the labels stand elsewhere": dataclasses.replace(KEPT, carried=True),
    "two of one class": dataclasses.replace(KEPT, telling=False),
    "a trace": dataclasses.replace(KEPT, weight=0.95),
    "several classes": dataclasses.replace(SOFT, total=2.3, total_before=3.0),
    "an index": dataclasses.replace(KEPT, target="index"),
}


@pytest.mark.parametrize("mix", RIGHT.values(), ids=RIGHT)
def test_nothing_is_said_of(mix):
    assert found(seen(mix)) == []


def test_hard_labels_beside_mixed_ones_are_no_fault():
    assert found(seen(SOFT, dataclasses.replace(KEPT, target="2"))) == []


def test_a_number_that_differs_for_every_sample_is_no_label():
    assert found(seen(KEPT, labels=Field(types={"int": Tally(40)}, low=0, high=39))) == []


def test_without_a_mixture_the_rule_is_not_applicable():
    _, states = judge(seen(), select=["soft-label"])
    assert {s.rule: s.state for s in states}["soft-label"] == "not-applicable"
