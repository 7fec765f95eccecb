from __future__ import annotations

from typing import Any

from dlcheck.observation import Journey, Split, State, Step
from dlcheck.rules.collate import SHAPE, Cause
from dlcheck.rules.parting import Parting, parting, told


def state(*shape: int) -> State:
    return State("ndarray", "float32", shape)


def step(stage: str, line: int, before: State | None, after: State, **more: Any) -> Step:
    return Step(
        "data.py", line, "f", f"{stage}(x)", "x", stage, after, before, fields=("x",), **more
    )


def way(sample: int, *steps: Step) -> Journey:
    return Journey(sample, steps, {"x": steps[-1].after})


def where(cause: Cause, *journeys: Journey) -> Parting | None:
    return parting(Split(journeys={str(j.sample): j for j in journeys}), cause)


def ragged(usual: str, odd: str, sample: int = 9) -> Cause:
    return Cause(SHAPE, "x", {usual: (0, 1, 2), odd: (sample,)})


def resized(sample: int, before: State, after: State) -> Journey:
    height, width, _ = after.shape or ()
    return way(
        sample,
        step("imread", 10, None, before),
        step("Resize", 11, before, after, parameters="size=64"),
        step("ToTensor", 12, after, state(3, height, width)),
    )


def test_the_first_stage_after_samples_of_one_size() -> None:
    whole = state(80, 80, 3)
    found = where(
        ragged("3x64x64", "3x64x48"),
        resized(0, whole, state(64, 64, 3)),
        resized(9, whole, state(64, 48, 3)),
    )
    assert found
    assert found.step
    assert (found.step.stage, found.step.line) == ("Resize", 11)
    assert told(found).startswith(
        "Resize(size=64) at data.py:11 left 64x48x3 of 80x80x3 (sample 9)"
    )


def test_files_of_unequal_size_are_no_fault_where_a_stage_should_have_made_them_equal() -> None:
    """A window of one second at the end of a recording that is not a whole number of seconds."""

    def window(sample: int, length: int, cut: int, frames: int) -> Journey:
        return way(
            sample,
            step("read", 40, None, state(length)),
            step("slice", 44, state(length), state(cut)),
            step("stft", 30, state(cut), state(129, frames)),
        )

    found = where(
        ragged("129x63", "129x38"),
        window(0, 56_000, 8000, 63),
        window(1, 48_000, 8000, 63),
        window(9, 44_800, 4800, 38),
    )
    assert found
    assert found.step
    assert found.step.stage == "slice"


def test_where_no_stage_makes_them_equal_the_last_that_sets_the_size_is_named() -> None:
    found = where(
        ragged("3x64x64", "3x64x48"),
        resized(0, state(80, 80, 3), state(64, 64, 3)),
        resized(9, state(80, 60, 3), state(64, 48, 3)),
    )
    assert found
    assert found.step
    assert found.step.stage == "Resize"


def test_a_permute_makes_no_sample_differ() -> None:
    found = where(
        ragged("3x64x64", "3x64x48"),
        way(0, step("permute", 9, state(64, 64, 3), state(3, 64, 64))),
        way(9, step("permute", 9, state(64, 48, 3), state(3, 64, 48))),
    )
    assert found
    assert found.step
    assert found.step.stage == "permute"


def test_a_stage_that_the_odd_sample_did_not_pass() -> None:
    big = state(80, 80)
    found = where(
        ragged("64x64", "80x80"),
        way(0, step("imread", 10, None, big), step("crop", 12, big, state(64, 64))),
        way(9, step("imread", 10, None, big)),
    )
    assert found
    assert (found.step, found.usual_step and found.usual_step.stage) == (None, "crop")
    assert told(found) == "sample 9 did not pass crop at data.py:12"


def test_without_a_journey_of_each_kind_nothing_is_said() -> None:
    one = resized(0, state(80, 80, 3), state(64, 64, 3))
    assert where(ragged("3x64x64", "3x64x48")) is None
    assert where(ragged("3x64x64", "3x64x48"), one) is None
