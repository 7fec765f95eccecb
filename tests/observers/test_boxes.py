"""Boxes are counted beside the image of their sample, in each format that they may have."""

from __future__ import annotations

from typing import Any

import pytest

from dlcheck.observation import Boxes, Observation
from dlcheck.observers.batches import SampleCount
from dlcheck.observers.boxes import faults
from dlcheck.observers.values import Memory

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
IMAGE = torch.zeros(3, 80, 96)


def counted(*samples: Any) -> dict[str, Boxes]:
    seen = SampleCount((), Memory())
    for index, sample in enumerate(samples):
        seen.add(index, sample)
    return Observation.from_json({"splits": {"": seen.split()}}).splits[""].boxes


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((10, 10, 40, 40), []),
        ((40, 10, 10, 40), ["xyxy.inverted"]),
        ((10, 10, 10, 40), ["xyxy.flat"]),
        ((10, 10, 98, 40), ["xyxy.outside", "xywh.outside"]),
        ((60, 10, 40, 20), ["xyxy.inverted", "xywh.outside"]),
        ((10, 10, 96.9, 40), ["xywh.outside"]),
    ],
)
def test_faults_of_one_box(row: Any, expected: list[str]) -> None:
    found = faults(tuple(map(float, row)), (80, 96))
    assert [name for name in found if not name.startswith("cxcywh")] == expected


def test_boxes_of_a_sample_are_read_beside_its_image() -> None:
    rows = torch.tensor([[10.0, 10.0, 40.0, 40.0], [70.0, 10.0, 120.0, 40.0]])
    found = counted({"image": IMAGE, "boxes": rows}, {"image": IMAGE, "boxes": rows[:1]})["boxes"]
    assert (found.n, found.sized, found.arrays) == (3, 3, 2)
    assert found.boxes["xyxy.outside"] == 1
    assert found.faults["xyxy.outside"].at == (0,)
    assert found.worst["xyxy.outside"] == (70, 10, 120, 40, 96, 80)


def test_images_without_a_box_and_normalised_boxes_are_counted_apart() -> None:
    none = {"image": IMAGE, "boxes": torch.zeros(0, 4)}
    unit = {"image": IMAGE, "boxes": torch.tensor([[0.1, 0.1, 0.4, 0.4]])}
    found = counted(none, unit)["boxes"]
    assert (found.empty, found.unit, found.boxes) == (1, 1, {})


@pytest.mark.parametrize(
    "rows",
    [
        torch.ones(3, 4, dtype=torch.int64),
        torch.ones(3, 4, requires_grad=True),
        np.ones((3, 4), np.float32),
        torch.tensor([[0.0, 0.0, float("nan"), 5.0]] * 3),
    ],
    ids=["ints", "with grad", "array", "nan"],
)
def test_any_array_of_boxes_can_be_read(rows: Any) -> None:
    assert counted({"image": IMAGE, "gt_boxes": rows})["gt_boxes"].arrays == 1


def test_rows_of_four_without_a_name_are_no_boxes() -> None:
    assert counted({"image": IMAGE, "quaternions": torch.ones(3, 4)}) == {}


def test_torchvisions_boxes_name_their_format_and_canvas() -> None:
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    rows = tv_tensors.BoundingBoxes([[5, 5, 200, 20]], format="XYWH", canvas_size=(80, 96))
    found = counted((torch.zeros(7), rows))["1"]
    assert list(found.formats) == ["xywh"]
    assert found.boxes["xywh.outside"] == 1


def test_boxes_merge_with_the_example_of_the_first_sample() -> None:
    rows = [torch.tensor([[90.0, 1.0, 10.0 + k, 5.0]]) for k in range(2)]
    parts = [Boxes(n=1), *[counted({"image": IMAGE, "boxes": row})["boxes"] for row in rows]]
    joined = parts[0].merge(parts[1]).merge(parts[2])
    assert (joined.n, joined.boxes["xyxy.inverted"]) == (3, 2)
    assert joined.faults["xyxy.inverted"].at == (0,)
