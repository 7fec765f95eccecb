"""DLC303 names field, sample, the first step that made it; targets and `nan: ok` are spared."""

from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, WARNING, Finding, judge
from dlcheck.observation import Field, Journey, Loader, Observation, Split, State, Step, Tally

FILE = "pipeline.py"


def state(low: float | None, high: float | None, nonfinite: int = 0) -> State:
    return State("ndarray", "float32", (64, 64), "HW", low, high, nonfinite=nonfinite)


def step(before: State | None, after: State, line: int, text: str, field: str = "0") -> Step:
    return Step(FILE, line, "rescale", text, "x", "/", after, before, fields=(field,))


DIVIDED = (
    step(None, state(96, 96), 10, "tile = self.tiles[i]"),
    step(state(96, 96), state(None, None, 4096), 12, "x = (x - lo) / (hi - lo)"),
    step(state(None, None, 4096), state(None, None, 4096), 14, "x = x.copy()"),
)


def judged(
    bad: str = "0", n: int = 1, *, journey: Journey | None = None, **more: Any
) -> tuple[Finding, ...]:
    image = Field({"Tensor": Tally(1000)}, {"float32": Tally(1000)}, {"1x64x64": Tally(1000)})
    fields = {"0": image, "depth": image, "label": Field({"int": Tally(1000)})}
    fields[bad] = Field(
        image.types, image.dtypes, image.shapes, 0.0, 1.0, nonfinite=Tally(n, (52,) if n else ())
    )
    journeys = {str(journey.sample): journey} if journey else {}
    split = Split(loader=Loader(kind="map"), samples=1000, fields=fields, journeys=journeys, **more)
    return judge(Observation(splits={"": split}), select=["non-finite"])[0]


def test_one_bad_sample_in_a_thousand_is_an_error_with_the_line_that_made_it() -> None:
    journey = Journey(52, DIVIDED, {"0": state(None, None, 4096)})
    (found,) = judged(journey=journey)
    assert found.severity == ERROR
    assert (found.where.sample, found.where.line, found.where.stage) == (52, 12, "/")
    assert "96 throughout" in found.message
    assert found.evidence["share"] == 0.001


def test_a_file_that_holds_it_is_named_by_the_line_that_reads() -> None:
    journey = Journey(52, (step(None, state(0, 1, 3), 10, "x = np.load(p)"),), {"0": state(0, 1)})
    (found,) = judged(journey=journey)
    assert found.where.line == 10
    assert "first line that has it" in found.message


def test_a_sample_that_came_out_without_names_no_stage() -> None:
    journey = Journey(52, DIVIDED[:1], {"0": state(96, 96)})
    (found,) = judged(journey=journey)
    assert found.where.stage is None
    assert "came out without" in found.message


def test_on_a_target_it_is_a_warning() -> None:
    (found,) = judged("depth", 400)
    assert found.severity == WARNING
    assert found.evidence["share"] == 0.4


@pytest.mark.parametrize(
    "given",
    [
        {"fields": {"depth": {"nan": "ok"}}},
        {"fields": {"depth": {"nan": True}}},
        {"expect": {"depth": {"nan": "ok"}}},
    ],
)
def test_declared_it_is_fine(given: dict[str, Any]) -> None:
    assert judged("depth", 400, given=given) == ()


def test_finite_samples_are_fine() -> None:
    assert judged(n=0) == ()
