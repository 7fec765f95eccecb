"""DLC110, and what DLC107 and DLC001 make of a step that was tried, on recorded trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, WARNING, Finding, judge
from dlcheck.observation import Failure, Frame, Line, Meeting, Observation, Split, Trial

AT = Line("/u/train.py", 12, "step", "loss = mse(net(x), price)")
COLUMN = Meeting("mse_loss", (8, 1), (8,), "float32", "float32", (8, 8), "1", AT)


def findings(trial: Trial, *failures: Failure) -> list[Finding]:
    split = Split(
        samples=32, batches=4, trials=(trial,), failures={one.key: one for one in failures}
    )
    found, _ = judge(Observation(splits={"": split}), command="shapes")
    return list(found)


def failed(message: str, exception: str = "RuntimeError") -> Failure:
    frame = Frame("/u/train.py", 12, "step", "loss = criterion(net(x), y)", user=True)
    return Failure("step", exception, message, (frame,))


def test_column_that_meets_a_row_is_an_error_with_both_shapes() -> None:
    (one,) = findings(Trial(meetings=(COLUMN,)))
    assert (one.rule, one.severity) == ("broadcast-target", ERROR)
    assert "(8, 1) with `1` of shape (8,) to (8, 8)" in one.message
    assert (one.where.field, one.where.line) == ("1", 12)


def test_repeated_target_is_a_warning() -> None:
    meeting = replace(COLUMN, prediction=(8, 3, 4, 4), target=(8, 1, 4, 4), made=(8, 3, 4, 4))
    (one,) = findings(Trial(meetings=(meeting,)))
    assert one.severity == WARNING


@pytest.mark.parametrize(
    "meeting",
    [
        replace(COLUMN, target=(), made=(8, 1)),
        replace(COLUMN, target=(1,), made=(8, 1)),
        replace(COLUMN, prediction=(1, 1), target=(1,), made=(1, 1)),
    ],
    ids=["a number", "one element", "a batch of one"],
)
def test_target_of_one_number_is_healthy(meeting: Meeting) -> None:
    assert findings(Trial(meetings=(meeting,))) == []


def test_both_batches_make_one_finding() -> None:
    trials = Trial(meetings=(COLUMN,)), Trial("last", meetings=(replace(COLUMN, made=(5, 5)),))
    obs = Observation(splits={"": Split(samples=32, batches=4, trials=trials)})
    assert len(judge(obs, select=["broadcast-target"])[0]) == 1


ONE_HOT = failed("Expected floating point type for target with class probabilities, got Long")
CHANNELS = failed("expected input[8, 1, 32, 32] to have 3 channels, but got 1 channels instead")
DTYPE = failed("expected scalar type Long but found Float")
CLASS = failed("Target 10 is out of bounds.", "IndexError")
TYPO = failed("name 'criterium' is not defined", "NameError")
ARRAY: dict[str, Any] = {"field": "1", "shape": (30, 10), "dtype": "int64"}


@pytest.mark.parametrize(
    ("failure", "trial", "rule", "said"),
    [
        (ONE_HOT, Trial(about="size", loss="cross_entropy", other=(30, 10), **ARRAY),
         "broadcast-target", "class indexes of shape (30,) and got `1` of shape (30, 10) int64"),
        (CHANNELS, Trial(about="channels", layer="0", kind="Conv2d", wanted="3", got="1",
                         field="0", shape=(8, 1, 32, 32), dtype="float32"),
         "contract-mismatch", "Conv2d `0` wants 3 channels and got 1"),
        (DTYPE, Trial(about="dtype", loss="cross_entropy", **ARRAY),
         "contract-mismatch", "expected scalar type Long"),
        (CLASS, Trial(about="classes", loss="cross_entropy", wanted="10", got="10", **ARRAY),
         "contract-mismatch", "the label 10 in `1` for 10 outputs"),
        (failed("The size of tensor a (8) must match"), Trial(about="size"),
         "contract-mismatch", "the step refuses the first batch"),
        (TYPO, Trial(), "pipeline-error", "criterium"),
    ],
    ids=["one-hot", "channels", "dtype", "class", "own loss", "typo"],
)  # fmt: skip
def test_failing_step_is_spoken_of_once(
    failure: Failure, trial: Trial, rule: str, said: str
) -> None:
    (one,) = findings(replace(trial, failure=failure.key), failure)
    assert (one.rule, one.severity) == (rule, ERROR)
    assert said in one.message


def test_without_a_trial_the_rule_does_not_apply() -> None:
    obs = Observation(splits={"": Split(samples=8, batches=1)})
    _, states = judge(obs, select=["broadcast-target"])
    assert next(s for s in states if s.rule == "broadcast-target").state == "not-applicable"
