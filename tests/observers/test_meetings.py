"""A loss that broadcasts prediction and target is seen; shapes that belong together are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dlcheck.observation import Meeting  # noqa: E402
from dlcheck.observers.meetings import Meetings, Parts, broadcast  # noqa: E402

functional: Any = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:Using a target size")


def met(loss: Callable[[Any, Any], Any], outputs: int = 1, *shape: int) -> list[Meeting]:
    """Run a model of `outputs` and a loss on a batch of 8 whose target has a shape."""
    batch = torch.randn(8, 3), torch.randn(*(shape or (8,)))
    meetings = Meetings(Parts(batch))
    model = torch.nn.Linear(3, outputs)
    with meetings.watching():
        loss(model(batch[0]), batch[1])
    return meetings.found


@pytest.mark.parametrize(
    "loss",
    [
        functional.mse_loss,
        torch.nn.SmoothL1Loss(),
        lambda prediction, target: (prediction - target).square().mean(),
        lambda prediction, target: (target - prediction).abs().mean(),
    ],
    ids=["function", "module", "difference", "turned difference"],
)
def test_column_that_meets_a_row(loss: Callable[[Any, Any], Any]) -> None:
    (one,) = met(loss)
    assert (one.prediction, one.target, one.made, one.field) == ((8, 1), (8,), (8, 8), "1")
    assert one.at is not None
    assert one.at.file == __file__


def test_maps_that_meet_masks_without_a_channel() -> None:
    """Dice by hand: (B, 1, H, W) times (B, H, W) is (B, B, H, W)."""
    batch = torch.randn(4, 3, 8, 8), (torch.rand(4, 8, 8) > 0.5).long()
    meetings = Meetings(Parts(batch, ("image", "mask")))
    model = torch.nn.Conv2d(3, 1, 1)
    with meetings.watching():
        image, mask = batch
        (model(image).sigmoid() * mask.float()).sum()
    (one,) = meetings.found
    assert (one.function, one.made, one.field) == ("mul", (4, 4, 8, 8), "mask")


@pytest.mark.parametrize(
    ("loss", "shape"),
    [
        (functional.mse_loss, (8, 1)),
        (lambda prediction, target: (prediction - target).mean(), (8, 1)),
        (lambda prediction, target: functional.mse_loss(prediction.squeeze(1), target), (8,)),
        (lambda prediction, _: prediction.squeeze(1)[:, None] - prediction.squeeze(1), (8,)),
        (lambda prediction, target: prediction.squeeze(1)[:, None] - target, (8,)),
    ],
    ids=["equal", "equal difference", "squeezed", "pairs", "pairs on purpose"],
)
def test_shapes_that_belong_together(loss: Callable[[Any, Any], Any], shape: tuple[int]) -> None:
    assert met(loss, 1, *shape) == []


@pytest.mark.parametrize(
    ("a", "b", "made"),
    [((8, 1), (8,), (8, 8)), ((8, 3), (8, 1), (8, 3)), ((8, 3), (8,), ()), ((2,), (2,), (2,)),
     ((), (4,), (4,))],
)  # fmt: skip
def test_broadcasting_follows_torch(a: Any, b: Any, made: Any) -> None:
    assert broadcast(a, b) == made
