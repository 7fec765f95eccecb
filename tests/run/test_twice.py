"""The same sample drawn again: what counts as another one, and which step is to blame."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from dlcheck.observation import State, Step
from dlcheck.observers.journey import Traced
from dlcheck.run.twice import compare, parts_at, repeats

np = pytest.importorskip("numpy")


def untraced(function: Any) -> Traced:
    return Traced(value=function())


def drawn(draw: Any, *samples: int) -> dict[int, dict[str, dict[str, float]]]:
    return {one.sample: one.fields for one in repeats(samples or (0,), draw, untraced, ())}


def test_equal_samples_draw_no_difference() -> None:
    assert drawn(lambda i: {"x": np.full((3, 4), i), "at": "a"}, 0, 5) == {0: {}, 5: {}}


def test_flip_with_even_odds_is_found_and_measured() -> None:
    source = random.Random(0)
    picture = np.arange(12.0).reshape(3, 4)
    found = drawn(lambda _: (picture if source.random() < 0.5 else picture[:, ::-1], 1))
    assert found[0]["0"] == {"share": 1.0, "most": 3.0}


def test_other_shape_differs_wholly() -> None:
    sizes = itertools.count(3)
    assert drawn(lambda _: np.zeros(next(sizes))) == {0: {"": {"share": 1.0}}}


def test_rounding_and_lone_numbers_are_no_difference() -> None:
    """Sums in another order, and the time that a sample took."""
    noise = itertools.count()
    draw = lambda _: {"x": np.ones(8) + 1e-9 * next(noise), "seconds": np.float64(next(noise))}  # noqa: E731
    assert drawn(draw) == {0: {}}


def test_nan_is_equal_to_itself() -> None:
    holes = np.array([1.0, np.nan, 3.0])
    assert compare({"x": holes}, {"x": holes.copy()}) == {}


def test_array_changed_in_place_after_it_was_returned() -> None:
    """A cache that hands out its own array is compared with what it was."""
    cached = np.zeros(4)

    def draw(_: int) -> Any:
        cached[:] += 1
        return cached

    assert drawn(draw)[0][""]["share"] == 1.0


def test_sample_that_raises_is_left_out() -> None:
    def draw(i: int) -> Any:
        return np.zeros(2) if i else 1 / 0

    assert drawn(draw, 0, 1) == {1: {}}


def step(stage: str, mean: float, line: int = 10) -> Step:
    state = State("ndarray", "float32", (8, 8), "HW", 0.0, 1.0, mean)
    return Step("data.py", line, "__getitem__", "", "x", stage, state, fields=("x",))


@pytest.mark.parametrize(
    ("one", "other", "stage"),
    [
        ([step("Read", 0.5), step("Jitter", 0.5)],
         [step("Read", 0.5), step("Jitter", 0.6)], "Jitter"),
        ([step("Read", 0.5), step("Flip", 0.5), step("Cast", 0.5)],
         [step("Read", 0.5), step("Cast", 0.5)], "Flip"),
        ([step("Read", 0.5), step("Cast", 0.5)],
         [step("Read", 0.5), step("Flip", 0.5), step("Cast", 0.5)], "Flip"),
        ([step("Read", 0.5)], [step("Read", 0.5)], None),
    ],
    ids=["another result", "passed by this draw only", "passed by the other only", "the same"],
)  # fmt: skip
def test_first_step_at_which_two_draws_part(one: Any, other: Any, stage: str | None) -> None:
    found = parts_at(tuple(one), tuple(other), {"x"})
    assert (found.stage if found else None) == stage
