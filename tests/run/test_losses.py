"""Model and loss of a config on the meta device: nothing is computed, shapes are compared."""

from __future__ import annotations

from typing import Any

import pytest

from dlcheck.observers.describe import Described
from dlcheck.run.losses import try_loss

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:Using a target size")


def linear(outputs: int) -> dict[str, Any]:
    return {"_target_": "torch.nn.Linear", "in_features": 10, "out_features": outputs}


def batch(*target: int, dtype: str = "int64") -> list[Described]:
    return [
        Described("", "tuple", None, (2,)),
        Described("0", "Tensor", "float32", (8, 10)),
        Described("1", "Tensor", dtype, target),
    ]


@pytest.mark.parametrize(
    ("loss", "outputs", "leaves", "said"),
    [
        ("torch.nn:CrossEntropyLoss", 10, batch(8), ("", 0)),
        ("torch.nn:CrossEntropyLoss", 10, batch(8, 10, dtype="float32"), ("", 0)),
        ("torch.nn:CrossEntropyLoss", 10, batch(8, 10), ("size", 0)),
        ("torch.nn.functional:cross_entropy", 10, batch(8, 1), ("size", 0)),
        ({"_target_": "torch.nn.MSELoss"}, 1, batch(8, dtype="float32"), ("", 1)),
        ({"_target_": "torch.nn.MSELoss"}, 1, batch(8, 1, dtype="float32"), ("", 0)),
        ("torch.nn:BCEWithLogitsLoss", 1, batch(8, dtype="float32"), ("size", 1)),
    ],
    ids=["indexes", "probabilities", "one-hot", "column", "broadcast", "equal", "refused"],
)
def test_loss_with_what_the_model_gives(
    loss: Any, outputs: int, leaves: Any, said: tuple[str, int]
) -> None:
    trial, error = try_loss({"model": linear(outputs), "loss": loss}, leaves)
    assert (trial.about, len(trial.meetings), trial.reason) == (*said, "")
    assert (error is None) == (not trial.failure)
    assert trial.field in {None, "1"}


def test_several_targets_without_a_name_are_left_alone() -> None:
    leaves = [*batch(8), Described("2", "Tensor", "int64", (8,))]
    trial, _ = try_loss({"model": linear(10), "loss": "torch.nn:CrossEntropyLoss"}, leaves)
    assert "more than one" in trial.reason


def test_random_state_is_unchanged() -> None:
    before = torch.get_rng_state()
    try_loss({"model": linear(10), "loss": "torch.nn:CrossEntropyLoss"}, batch(8))
    assert torch.equal(before, torch.get_rng_state())
