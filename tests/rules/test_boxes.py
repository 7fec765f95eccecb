"""DLC309: boxes that are impossible in their format; formats, normalised and missing ones."""

from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import ERROR, WARNING, Finding, judge
from dlcheck.observation import (
    Boxes,
    Field,
    Journey,
    Loader,
    Observation,
    Split,
    State,
    Step,
    Tally,
)
from dlcheck.observers.boxes import faults

FILE = "pipeline.py"


def boxes(*rows: tuple[float, float, float, float], size: tuple[int, int] = (80, 96)) -> Boxes:
    """Count rows one a sample, as the drive does."""
    found = Boxes()
    for index, row in enumerate(rows):
        unit = max(row) <= 1
        names = faults(row, None if unit else size)
        found = found.merge(
            Boxes(
                n=1, arrays=1, sized=1, unit=int(unit), high=max(row),
                faults={name: Tally(1, (index,)) for name in names},
                boxes=dict.fromkeys(names, 1),
                worst=dict.fromkeys(names, (*row, size[1], size[0])),
            )
        )  # fmt: skip
    return found


XYWH = [(10 + n, 5.0, 40 - n, 30.0) for n in range(24)] + [(60.0, 20.0, 20.0, 30.0)] * 3
XYXY = [(10 + n, 5.0, 50 + n, 60.0) for n in range(24)]
OUTSIDE = [*XYXY, (10.0, 5.0, 120.0, 60.0)]
FLAT = [*XYXY, (10.0, 5.0, 10.0, 60.0)]


def judged(seen: Boxes, **more: Any) -> tuple[Finding, ...]:
    field = Field({"Tensor": Tally(9)}, {"float32": Tally(9)}, {"2x4": Tally(9)}, 0, seen.high)
    known = {"loader": Loader(kind="map"), "samples": 27, "fields": {"boxes": field}}
    split = Split(**known | {"boxes": {"boxes": seen}} | more)
    return judge(Observation(splits={"": split}), select=["bad-boxes"])[0]


def declared(form: str) -> dict[str, Any]:
    return {"fields": {"boxes": {"format": form}}}


def test_coco_boxes_read_as_corners_are_named_as_such() -> None:
    (found,) = judged(boxes(*XYWH), given=declared("xyxy"))
    assert found.severity == ERROR
    assert "x2 < x1" in found.message
    assert "xywh read as xyxy" in found.message
    assert found.where.sample == 16
    assert found.evidence["image"] == [96, 80]


def test_a_box_outside_its_image_is_an_error_where_the_format_is_declared() -> None:
    (found,) = judged(boxes(*OUTSIDE), given=declared("pascal_voc"))
    assert (found.severity, found.where.sample) == (ERROR, 24)


def test_where_nothing_is_declared_it_is_a_warning() -> None:
    (found,) = judged(boxes(*FLAT))
    assert found.severity == WARNING
    assert "no width or no height" in found.message


def test_an_image_that_is_resized_without_its_boxes_is_named() -> None:
    read = State("ndarray", "uint8", (160, 192, 3), "HWC")
    small = State("ndarray", "uint8", (80, 96, 3), "HWC")
    kept = State("ndarray", "float32", (2, 4), low=0.0, high=120.0)
    steps = (
        Step(FILE, 10, "f", "b = boxes[i]", "b", "[]", kept, fields=("boxes",)),
        Step(FILE, 12, "f", "x = resize(x)", "x", "resize", small, read, fields=("image",)),
    )
    journey = Journey(24, steps, {"boxes": kept, "image": small})
    (found,) = judged(boxes(*OUTSIDE), given=declared("xyxy"), journeys={"24": journey})
    assert "changed the image and not the boxes" in found.message
    assert found.where.stage == "resize"


@pytest.mark.parametrize(
    ("why", "seen", "given"),
    [
        ("corners in their place", boxes(*XYXY), declared("xyxy")),
        ("declared as COCO's", boxes(*XYWH), declared("xywh")),
        ("COCO's, and nobody declares", boxes(*XYWH), {}),
        ("centres", boxes(*[(40 + n, 40.0, 30.0, 20.0) for n in range(12)]), declared("cxcywh")),
        ("normalised", boxes(*[(0.5, 0.5, 0.2, 0.1)] * 12), {}),
        ("rounding", boxes(*XYXY, (10.0, 5.0, 96.9, 80.5)), declared("xyxy")),
        ("no box at all", Boxes(arrays=9, empty=9), declared("xyxy")),
        ("on a scale of 1000", boxes(*[(100.0, 200.0, 500.0, 900.0)] * 12), {}),
        ("a format of one's own", boxes(*XYWH), declared("xyxya")),
    ],
)
def test_silent_on(why: str, seen: Boxes, given: dict[str, Any]) -> None:
    assert judged(seen, given=given) == (), why


def test_arrays_of_four_that_are_no_boxes_are_left_alone() -> None:
    split = {"boxes": {"quaternions": boxes(*XYWH)}, "fields": {"quaternions": Field()}}
    assert judged(boxes(*XYWH), **split) == ()
