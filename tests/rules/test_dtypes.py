"""DLC304: dtypes that vary, that the loss refuses, that double memory, and those by design."""

from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, WARNING, Finding, judge
from dlcheck.observation import (
    Failure,
    Field,
    Journey,
    Leaf,
    Loader,
    Observation,
    SampleLeaves,
    Split,
    State,
    Step,
    Tally,
)

FILE = "pipeline.py"
CLASSES = {"expect": {"label": {"classes": 3}}}


def leaf(shape: str, low: float, high: float, **dtypes: int) -> Field:
    tallies = {name: Tally(n, (number,)) for number, (name, n) in enumerate(dtypes.items())}
    values = {str(v): Tally(40, (v,)) for v in range(int(low), int(high) + 1) if shape == "scalar"}
    total = sum(dtypes.values())
    return Field({"Tensor": Tally(total)}, tallies, {shape: Tally(total)}, low, high, values=values)


def judged(field: str, seen: Field, *batch: str, **more: Any) -> tuple[Finding, ...]:
    shape = next(iter(seen.shapes))
    shape = "8" if shape == "scalar" else f"8x{shape}"
    dtypes = {name: Tally(10) for name in batch or seen.dtypes}
    batches = {field: Field({"Tensor": Tally(10)}, dtypes, {shape: Tally(10)})}
    split = Split(
        loader=Loader(kind="map", default_collate=True), samples=120, batches=10,
        fields={field: seen}, **{"batch_fields": batches, **more},
    )  # fmt: skip
    return judge(Observation(splits={"": split}), select=["dtype-mismatch"])[0]


def test_int32_labels_of_declared_classes_are_an_error_at_their_line() -> None:
    cast = Step(
        FILE, 34, "__getitem__", "np.array(y)", "labels", "np.array",
        State("ndarray", "int32", ()), fields=("label",),
    )  # fmt: skip
    journey = Journey(0, (cast,), {"label": State("Tensor", "int32", ())})
    (found,) = judged(
        "label", leaf("scalar", 0, 2, int32=120), given=CLASSES, journeys={"0": journey}
    )
    assert (found.severity, found.where.line) == (ERROR, 34)
    assert "int32" in found.message


def test_without_a_declaration_they_are_a_warning() -> None:
    (found,) = judged("label", leaf("scalar", 0, 2, int32=120))
    assert found.severity == WARNING


@pytest.mark.parametrize(
    ("why", "field", "seen", "given"),
    [
        ("what cross_entropy takes", "label", leaf("scalar", 0, 2, int64=120), CLASSES),
        ("torch takes bytes too", "label", leaf("scalar", 0, 2, uint8=120), CLASSES),
        ("a multi-label vector", "label", leaf("5", 0, 1, float64=120), CLASSES),
        ("an age for a regression", "age", leaf("scalar", 0, 2, int32=120), {}),
        ("half by design", "image", leaf("3x64x64", 0, 1, float16=120), {}),
        ("bfloat16 by design", "image", leaf("3x64x64", 0, 1, bfloat16=120), {}),
        ("bytes by design", "image", leaf("3x64x64", 0, 255, uint8=120), {}),
        ("a small table in float64", "features", leaf("12", -3, 3, float64=120), {}),
        ("a mask for dice", "mask", leaf("64x64", 0, 1, int32=120), {}),
        (
            "float64 that is declared", "image", leaf("3x64x64", 0, 1, float64=120),
            {"expect": {"image": {"dtype": "float64"}}},
        ),
    ],
)  # fmt: skip
def test_silent_on(why: str, field: str, seen: Field, given: dict[str, Any]) -> None:
    assert judged(field, seen, given=given) == (), why


def test_float64_images_are_a_warning_with_their_bytes() -> None:
    (found,) = judged("image", leaf("3x64x64", 0, 1, float64=120))
    assert found.severity == WARNING
    assert found.evidence["bytes"] == 2 * found.evidence["as_float32"]


def test_float64_targets_of_a_loss_on_real_numbers_are_an_error() -> None:
    seen = leaf("scalar", 0, 2, float64=120)
    (found,) = judged("target", seen, given={"loss": "torch.nn.MSELoss"})
    assert found.severity == ERROR


def test_a_dtype_that_varies_is_counted_and_promoted() -> None:
    seen = leaf("3x64x64", 0, 1, float32=110, float64=10)
    (found,) = judged("image", seen, "float32", "float64")
    assert found.severity == WARNING
    assert found.evidence["dtypes"] == {"float32": 110, "float64": 10}
    assert found.where.sample == 1


def test_where_it_failed_in_the_collate_it_is_an_error_that_explains_the_failure() -> None:
    samples = tuple(
        SampleLeaves(n, {"label": Leaf("Tensor", dtype, ())})
        for n, dtype in enumerate(["int64", "float32"])
    )
    message = "result type Float can't be cast to the desired output type Long"
    failure = Failure("collate", "RuntimeError", message, samples=samples)
    seen = leaf("scalar", 0, 2, int64=110, float32=10)
    (found,) = judged("label", seen, batch_fields={}, failures={failure.key: failure})
    assert found.severity == ERROR
    assert found.explains == {failure.key}


def test_an_int32_group_beside_the_label_is_fine() -> None:
    fields = {"label": leaf("scalar", 0, 2, int64=120), "group": leaf("scalar", 0, 2, int32=120)}
    batches = {
        name: Field({"Tensor": Tally(9)}, seen.dtypes, {"8": Tally(9)})
        for name, seen in fields.items()
    }
    split = Split(loader=Loader(kind="map"), samples=120, fields=fields, batch_fields=batches)
    assert judge(Observation(splits={"": split}), select=["dtype-mismatch"])[0] == ()
