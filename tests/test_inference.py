"""What a good run shows of a field becomes what is expected of it."""

from __future__ import annotations

from typing import Any

import pytest

import dlcheck.rules  # noqa: F401 - fills the registry
from dlcheck.findings import judge
from dlcheck.inference import bounds, combined, expect_of, together
from dlcheck.observation import Field, Journey, Loader, Observation, Split, State, Step, Tally

LOADER = Loader(kind="map", default_collate=True, batch_size=8, dataset_length=40)
OWN = Loader(kind="map", default_collate=False, batch_size=8, dataset_length=40)
IMAGENET = "mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]"


def image(*shapes: str, low: float = -2.1, high: float = 2.6, dtype: str = "float32") -> Field:
    seen = Tally(40, (0, 1, 2))
    return Field({"Tensor": seen}, {dtype: seen}, dict.fromkeys(shapes, seen), low, high)


def labels(*values: int, each: int = 10) -> Field:
    tallies = {str(value): Tally(each, (0,)) for value in values}
    return Field({"int": Tally(40)}, {}, {}, min(values), max(values), values=tallies)


def batched(dtype: str, *shapes: str) -> Field:
    seen = Tally(5, (0,))
    return Field({"Tensor": seen}, {dtype: seen}, dict.fromkeys(shapes, seen))


def ways(parameters: str = IMAGENET) -> dict[str, Journey]:
    state = State("Tensor", "float32", (3, 64, 64), "CHW", -2.1, 2.6)
    step = Step("data.py", 9, "__getitem__", "self.tf(x)", "x", "Normalize", state, state,
                parameters, fields=("image",))  # fmt: skip
    return {str(n): Journey(n, (step,), {"image": state}) for n in range(3)}


def split(fields: dict[str, Field], batch: dict[str, Field] | None = None, **more: Any) -> Split:
    known = {"loader": LOADER, "samples": 40, "of": 40, "batches": 5} | more
    return Split(fields=fields, batch_fields=batch or {}, **known)


GOOD = split(
    {"image": image("3x64x64"), "label": labels(0, 1, 2)},
    {"image": batched("float32", "8x3x64x64"), "label": batched("int64", "8")},
    journeys=ways(),
)


def test_what_is_frozen_is_all_that_expect_can_say():
    assert expect_of(GOOD) == {
        "image": {
            "shape": [3, 64, 64], "dtype": "float32", "layout": "CHW", "normalize": "imagenet",
            "range": [-2.12, 2.64],
        },
        "label": {"shape": [], "dtype": "int64", "classes": 3},
    }  # fmt: skip


def test_the_run_that_was_frozen_keeps_what_it_is_told():
    given = Split(**{**vars(GOOD), "given": {"expect": expect_of(GOOD)}})
    findings, _ = judge(Observation(splits={"": given}))
    assert findings == ()


def test_sizes_that_differ_stay_open_and_another_rank_says_nothing():
    varied = split({"image": image("3x64x64", "3x80x64")})
    assert expect_of(varied)["image"]["shape"] == [3, "*", 64]
    assert "shape" not in expect_of(split({"image": image("3x64x64", "64x64")}))["image"]


def test_as_many_boxes_as_a_sample_happens_to_have():
    boxes = split({"boxes": image("5x4", low=0, high=90)}, loader=OWN, batches=0)
    assert expect_of(boxes) == {"boxes": {"shape": ["*", 4], "dtype": "float32"}}


def test_a_list_of_things_is_told_by_a_pattern():
    fields = {f"1.{n}.boxes": batched("float32", f"{n + 1}x4") for n in range(4)}
    found = expect_of(split({}, fields, loader=OWN))
    assert found == {"1.*.boxes": {"shape": [4], "dtype": "float32"}}


def test_a_bare_tensor_has_no_name():
    assert expect_of(split({"": image("3x64x64")})) == {}


@pytest.mark.parametrize(
    ("field", "more", "told"),
    [
        (labels(0, 1, 2), {}, {"classes": 3}),
        (labels(0, 1, 2, each=1), {"of": 1000}, {}),
        (labels(0, 1, 2, each=5), {"of": 1000}, {"classes": 3}),
        (labels(0, 2), {}, {}),
        (labels(1, 2), {}, {}),
    ],
    ids=["all-read", "few-of-many", "each-often", "a-gap", "from-one"],
)
def test_classes_only_where_all_are_sure_to_have_been_met(field, more, told):
    found = expect_of(split({"label": field}, **more)).get("label", {})
    assert {key: found[key] for key in found if key == "classes"} == told


def test_ids_of_a_mask_with_its_ignore_index():
    seen = Tally(40)
    values = {str(v): seen for v in (0, 1, 2, 255)}
    mask = Field({"Tensor": seen}, {"uint8": seen}, {"64x64": seen}, 0, 255, values=values)
    told = expect_of(split({"mask": mask}))["mask"]
    assert (told["classes"], told["ignore_index"]) == (3, 255)
    values = {str(v): seen for v in (0, 255)}
    mask = Field({"Tensor": seen}, {"uint8": seen}, {"64x64": seen}, 0, 255, values=values)
    assert expect_of(split({"mask": mask}))["mask"]["values"] == [0, 255]


def test_what_the_user_expects_and_holds_stays_in_their_words():
    before = {"image": {"shape": [3, "*", "*"], "range": [-3, 3], "colour": "RGB"}}
    told = expect_of(GOOD, before)["image"]
    assert (told["shape"], told["range"], told["colour"]) == ([3, "*", "*"], [-3, 3], "RGB")
    assert told["normalize"] == "imagenet"


def test_what_no_longer_holds_is_replaced():
    before = {"image": {"shape": [3, 32, 32], "range": [-3, 3]}, "gone": {"dtype": "int64"}}
    told = expect_of(GOOD, before)
    assert told["image"]["shape"] == [3, 64, 64]
    assert told["image"]["range"] == [-3, 3]
    assert "gone" not in told


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [
        (0.01, 0.97, [0, 1]),
        (-0.9, 0.9, [-1, 1]),
        (0.0, 244.0, [0, 255]),
        (3.0, 65000.0, [0, 65535]),
        (-1000.0, 2000.0, [-2500, 3500]),
        (0.0, 12.0, [0, 18]),
        (0.0, 0.0, [0, 1]),
    ],
)
def test_a_range_has_the_ends_of_its_scale_or_room(low, high, ends):
    assert bounds(low, high) == ends


def test_what_holds_of_several_splits():
    train = {"image": {"shape": [3, 64, 64], "dtype": "float32", "range": [0, 1]}}
    val = {"image": {"shape": [3, 96, 64], "dtype": "float16", "range": [-1, 1]}}
    assert together([train, val]) == {"image": {"shape": [3, "*", 64], "range": [-1, 1]}}
    assert combined([{"classes": 2}, {"classes": 3}, {"classes": 1}]) == {"classes": 3}
