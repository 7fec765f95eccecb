"""DLC506 and DLC507 on recorded steps: what fires, what it names, and what stays silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import WARNING, Finding, find_rule, judge
from dlcheck.observation import Culprit, Line, Look, Observation, Optimizer, Split, Steps

BACKWARD = Line("/u/train.py", 29, "step", "loss.backward()", 36)
STEPPED = Line("/u/train.py", 30, "step", "self.optimizer.step()")
HEALTHY = Optimizer(
    "self.optimizer", "Adam", 4, steps=36, cleared=35, reached=36, felt=3, norms=(0.1, 0.2),
    moved=True, written=True, stepped=STEPPED, backward=BACKWARD,
)  # fmt: skip
FLAT = tuple(Look(call, 1, 40) for call in (4, 8, 12, 24, 36))
RISING = tuple(Look(call, 1, 10 * call) for call in (4, 8, 12, 24, 36))


def steps(*optimizers: Optimizer, looks: tuple[Look, ...] = FLAT, **more: Any) -> Steps:
    given: dict[str, Any] = {"calls": 36, "backwards": 36, "updates": 36, **more}
    known = {str(n): one for n, one in enumerate(optimizers)}
    return Steps(optimizers=known, lines=(BACKWARD,), looks=looks, **given)


def findings(slug: str, seen: Steps, *culprits: Culprit) -> list[Finding]:
    named = {f"graph:main:{n}": one for n, one in enumerate(culprits)}
    obs = Observation(splits={"": Split(samples=96, steps=seen, culprits=named)})
    found, _ = judge(obs, select=[slug], command="leak")
    return list(found)


STALE = replace(HEALTHY, stale=35, cleared=0, norms=(0.08, 2.4))


def test_gradients_that_are_never_cleared_name_optimizer_line_and_growth() -> None:
    (one,) = findings("unpaired-step", steps(STALE))
    assert "`self.optimizer` (Adam): zero_grad() is never called" in one.message
    assert "0.08 to 2.4" in one.message
    assert (one.where.file, one.where.line) == ("/u/train.py", 30)
    assert one.where.attribute == "self.optimizer"
    assert (one.evidence["backward"], one.evidence["step"], one.evidence["zero_grad"]) == (
        36, 36, 0,
    )  # fmt: skip


FAULTS = {
    "cleared now and then": (replace(STALE, cleared=9, stale=27), {}, "cleared 9 times only"),
    "cleared before the step": (
        replace(HEALTHY, empty=36, moved=False), {}, "between backward() and step()",
    ),
    "no backward at all": (
        replace(HEALTHY, empty=36, reached=0, felt=0, moved=False), {"backwards": 0},
        "backward() is never called",
    ),
    "parameters of another model": (
        replace(HEALTHY, empty=36, reached=0, felt=0, moved=False), {}, "no backward() reaches",
    ),
    "no step": (
        replace(HEALTHY, steps=0, moved=False, written=False, stepped=None), {"updates": 0},
        "never steps",
    ),
    "one of two is forgotten": (
        replace(HEALTHY, steps=0, moved=False, written=False, stepped=None), {}, "never steps",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAULTS)
def test_other_ways_of_not_training(case: str) -> None:
    optimizer, more, said = FAULTS[case]
    (one,) = findings("unpaired-step", steps(optimizer, **more))
    assert said in one.message
    assert one.where.line == (optimizer.stepped or BACKWARD).line


def test_accumulation_that_no_epoch_ends_is_a_warning() -> None:
    seen = steps(replace(HEALTHY, steps=0, cleared=0, moved=False), updates=0)
    split = Split(samples=96, steps=seen, finished_epochs=3)
    for one, count in ((split, 1), (replace(split, epoch_batches=12), 0)):
        obs = Observation(splits={"": one})
        found, _ = judge(obs, select=["unpaired-step"], command="leak")
        assert [finding.severity for finding in found] == [WARNING] * count


NEAR_MISSES = {
    "healthy": (HEALTHY, {}),
    "accumulates every fourth": (replace(HEALTHY, steps=9, cleared=8), {"updates": 9}),
    "accumulates over more batches than were seen": (
        replace(HEALTHY, steps=0, cleared=0, moved=False), {"updates": 0},
    ),
    "steps once late": (replace(HEALTHY, steps=0, later=4, moved=False), {}),
    "updated by hand": (replace(HEALTHY, steps=0, written=False), {"updates": 0}),
    "second optimizer starts later": (replace(HEALTHY, steps=0, moved=False), {}),
    "a loss of weight zero": (replace(HEALTHY, empty=36, felt=0), {}),
    "one stale step": (replace(HEALTHY, stale=1, steps=3), {}),
    "gradients wanted for themselves": (
        replace(HEALTHY, steps=0, moved=False, written=False, reached=2), {"updates": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_healthy_steps_are_silent(case: str) -> None:
    optimizer, more = NEAR_MISSES[case]
    assert findings("unpaired-step", steps(optimizer, **more)) == []


KEEPER = Culprit(
    "graph", "main", attribute="self.loss_sum", owner="step", type="Tensor", grew=320,
    file="/u/train.py", line=43, text="self.loss_sum += loss", unit="count",
    detail={"class": "Trainer", "bound": None},
)  # fmt: skip


def test_piled_up_graphs_name_who_keeps_them() -> None:
    (one,) = findings("graph-retained", steps(HEALTHY, looks=RISING), KEEPER)
    assert "360 nodes after 36 steps, 10 more with every step" in one.message
    assert "`self.loss_sum` (Tensor) of Trainer" in one.message
    assert (one.where.line, one.where.attribute) == (43, "self.loss_sum")


def test_without_a_keeper_the_backward_is_pointed_at() -> None:
    (one,) = findings("graph-retained", steps(HEALTHY, looks=RISING))
    assert (one.where.line, one.where.attribute) == (29, None)


def sawtooth(period: int) -> tuple[Look, ...]:
    return tuple(Look(call, 1, 10 + 10 * (call % period)) for call in (4, 8, 12, 18, 27, 36))


LEVEL = (*RISING, Look(60, 1, 360))
SILENT = {
    "flat": (FLAT, {}, ()),
    "levels off": (LEVEL, {}, ()),
    "let go every fifth": (sawtooth(5), {}, ()),
    "losses wait for one backward": (RISING, {"backwards": 0}, ()),
    "too few looks": (RISING[:2], {}, ()),
    "bounded": (RISING, {}, (replace(KEEPER, detail={"bound": 50}),)),
}


@pytest.mark.parametrize("case", SILENT)
def test_graphs_that_do_not_pile_up_are_silent(case: str) -> None:
    looks, more, culprits = SILENT[case]
    assert findings("graph-retained", steps(HEALTHY, looks=looks, **more), *culprits) == []


def test_outputs_kept_without_any_backward_pile_up() -> None:
    looks = tuple(Look(call, call, 5 * call) for call in (4, 8, 12, 24, 36))
    assert len(findings("graph-retained", steps(looks=looks, backwards=0))) == 1


@pytest.mark.parametrize("slug", ["graph-retained", "unpaired-step"])
def test_without_a_step_there_is_nothing_to_judge(slug: str) -> None:
    obs = Observation(splits={"": Split(samples=8)})
    found, states = judge(obs, select=[slug], command="leak")
    assert found == ()
    assert next(s for s in states if s.rule == slug).state == "not-applicable"


def test_step_that_could_not_run_says_why() -> None:
    obs = Observation(splits={"": Split(samples=8, steps=Steps(reason="no GPU here"))})
    _, states = judge(obs, select=["unpaired-step"], command="leak")
    assert next(s for s in states if s.rule == "unpaired-step").reason == "no GPU here"


def test_reports_of_one_drive_merge_to_the_latest() -> None:
    first, second = steps(HEALTHY, looks=RISING[:3], calls=12), steps(STALE, looks=RISING[3:])
    for merged in (first.merge(second), second.merge(first)):
        assert (merged.calls, merged.looks) == (36, RISING)
        assert merged.optimizers["0"] == STALE
    obs = Observation(splits={"": Split(steps=second)})
    assert Observation.from_json(obs.to_json()) == obs
    assert find_rule("DLC507").slug == "unpaired-step"
