from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, Finding, judge
from dlcheck.observation import Failure, Frame, Journey, Observation, Split, State, Step

WORDS = (
    "At least one stride in the given numpy array is negative, and tensors with negative strides "
    "are not currently supported. (You can probably work around this by making a copy of your "
    "array with array.copy().)"
)
TO_CHW = Frame("pipeline.py", 18, "to_chw", "return torch.from_numpy(img)", user=True)
PLAIN = State("ndarray", "float32", (64, 64, 3), "HWC")
FLIPPED = State("ndarray", "float32", (64, 64, 3), "HWC", strides=(768, -12, 4))


def refused(phase: str = "sample", message: str = WORDS, **more: Any) -> Failure:
    known = {"frames": (TO_CHW,), "at": (9,), "count": 3}
    return Failure(phase, "ValueError", message, **{**known, **more})


def step(before: State, after: State, line: int) -> Step:
    return Step(
        "pipeline.py", line, "random_flip", "img = np.flip(img, axis=1)", "img", "flip", after,
        before,
    )  # fmt: skip


def failed_way(*steps: Step, **more: Any) -> Journey:
    return Journey(9, steps, failure=refused(), failed_stage="to_chw", **more)


def found(*failures: Failure, journeys: tuple[Journey, ...] = ()) -> list[Finding]:
    split = Split(
        samples=30, batches=2, failures={f.key: f for f in failures},
        journeys={str(j.sample): j for j in journeys},
    )  # fmt: skip
    return list(judge(Observation(splits={"": split}))[0])


def test_points_at_the_flip_and_says_how_often() -> None:
    (finding,) = found(refused(), journeys=(failed_way(step(PLAIN, FLIPPED, 13)),))
    assert (finding.rule, finding.severity) == ("negative-strides", ERROR)
    assert (finding.where.stage, finding.where.line, finding.where.sample) == ("flip", 13, 9)
    assert finding.evidence["strides"] == [768, -12, 4]
    assert finding.evidence["refused_by"] == "to_chw"
    assert (finding.evidence["failed"], finding.evidence["read"]) == (3, 30)


def test_without_journeys_it_points_at_the_line_that_refused() -> None:
    (finding,) = found(refused())
    assert (finding.rule, finding.where.line, finding.where.stage) == ("negative-strides", 18, None)
    assert finding.evidence["refused_by"] == "to_chw"


@pytest.mark.parametrize(
    "message",
    [WORDS, "some of the strides of a given numpy array are negative. This is not supported"],
)
@pytest.mark.parametrize("phase", ["sample", "collate"])
def test_knows_the_words_of_torch_old_and_new(phase: str, message: str) -> None:
    assert [f.rule for f in found(refused(phase, message))] == ["negative-strides"]


def test_a_journey_that_came_out_otherwise_is_no_witness() -> None:
    other = failed_way(step(PLAIN, FLIPPED, 13), reproduced=False)
    (finding,) = found(refused(), journeys=(other,))
    assert (finding.where.line, finding.where.stage) == (18, None)


def test_another_sample_that_took_the_flip_is_a_witness() -> None:
    other = dataclasses.replace(failed_way(step(PLAIN, FLIPPED, 13)), sample=20)
    (finding,) = found(refused(), journeys=(other,))
    assert (finding.where.line, finding.where.sample) == (13, 9)


@pytest.mark.parametrize("message", ["negative dimensions are not allowed", "stride must be > 0"])
def test_leaves_other_failures_alone(message: str) -> None:
    assert "negative-strides" not in [f.rule for f in found(refused(message=message))]


def test_is_silent_on_strides_that_nothing_refuses() -> None:
    """Views that run backwards are copied by the default collate of tensors, or by the user."""
    good = Journey(1, (step(PLAIN, FLIPPED, 13),), {"0": State("ndarray", "float32", (64, 64))})
    assert found(journeys=(good,)) == []
