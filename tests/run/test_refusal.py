"""The model on the meta device: which layer refuses a batch, and what says nothing about it."""

from __future__ import annotations

from typing import Any

import pytest

from dlcheck.observers.describe import Described
from dlcheck.run.refusal import first_input, run_model

torch = pytest.importorskip("torch")


def batch(*shape: int, dtype: str = "float32") -> list[Described]:
    return [
        Described("", "tuple", None, (2,)),
        Described("image", "Tensor", dtype, shape),
        Described("label", "Tensor", "int64", shape[:1]),
    ]


def node(kind: str, **arguments: Any) -> dict[str, Any]:
    return {"_target_": f"torch.nn.{kind}", **arguments}


CONV = node("Conv2d", in_channels=3, out_channels=4, kernel_size=3)


def test_batch_that_fits_is_taken() -> None:
    run = run_model(CONV, batch(8, 3, 32, 32))
    assert (run.failure, run.kind, run.reason) == (None, "", "")


@pytest.mark.parametrize(
    ("model", "leaves", "quarrel"),
    [
        (CONV, batch(8, 1, 32, 32), ("Conv2d", "channels", "3", "1")),
        (CONV, batch(8, 32, 32, 3), ("Conv2d", "channels", "3", "32")),
        (CONV, batch(8, 3, 32, 32, dtype="float64"), ("Conv2d", "dtype", "float32", "float64")),
        (node("Linear", in_features=10, out_features=2), batch(8, 12),
         ("Linear", "features", "10", "12")),
        (node("BatchNorm2d", num_features=4), batch(8, 3, 8, 8),
         ("BatchNorm2d", "channels", "4", "3")),
        (node("Sequential", _args_=[node("Conv2d", in_channels=3, out_channels=4, kernel_size=3),
                                    node("MaxPool2d", kernel_size=64)]), batch(8, 3, 32, 32),
         ("MaxPool2d", "size", "", "")),
    ],
    ids=["one channel", "channels last", "float64", "features", "batch norm", "too small"],
)  # fmt: skip
def test_layer_with_what_it_wanted_and_got(model: Any, leaves: Any, quarrel: Any) -> None:
    run = run_model(model, leaves)
    assert (run.kind, run.about, run.wanted, run.got) == quarrel
    assert run.field == "image"


def test_layer_inside_is_named_by_its_path() -> None:
    model = node("Sequential", _args_=[node("Identity"), CONV])
    assert run_model(model, batch(8, 1, 32, 32)).layer == "1"


@pytest.mark.parametrize(
    ("model", "leaves", "stepped", "reason"),
    [
        (CONV, batch(8, 32, 32, 3, dtype="uint8"), False, "cast on the device"),
        (CONV, batch(8, 32, 32, 3), True, "the step feeds the model"),
        (node("Bilinear", in1_features=8, in2_features=8, out_features=2), batch(8, 8), False,
         "more than one input"),
        (node("Conv2d", in_channels=3), batch(8, 3, 9, 9), False, "could not be"),
        (node("Embedding", num_embeddings=9, embedding_dim=4), batch(8, 5), False, "could not be"),
        (node("functional.relu"), batch(8, 5), False, "could not be"),
    ],
    ids=["uint8", "with a step", "two inputs", "wrong arguments", "no word of sizes", "no module"],
)  # fmt: skip
def test_what_tells_nothing_says_why(model: Any, leaves: Any, stepped: Any, reason: str) -> None:
    run = run_model(model, leaves, stepped=stepped)
    assert run.kind == ""
    assert reason in run.reason


def test_two_images_of_a_batch_are_not_guessed_between() -> None:
    """Of two the first is taken where it comes first; a pair after a label is left alone."""
    pair = [
        Described("left", "Tensor", "float32", (8, 3, 9, 9)),
        Described("right", "Tensor", "float32", (8, 3, 9, 9)),
    ]
    first = first_input(pair)
    assert first is not None
    assert first.path == "left"
    table = Described("table", "Tensor", "float32", (8, 5))
    assert first_input([table, *pair]) is None
