from __future__ import annotations

import pytest

from dlcheck.observation import Field, Split, Tally
from dlcheck.reporters import batch


def shapes(*texts: str) -> Field:
    return Field(types={"Tensor": Tally(1)}, shapes={text: Tally(1) for text in texts})


@pytest.mark.parametrize(
    ("seen", "shown"),
    [
        pytest.param(("32x3x64x64",), "32x3x64x64", id="one"),
        pytest.param(("32x3x48x64", "16x3x72x64"), "16-32 x 3 x 48-72 x 64", id="axes-vary"),
        pytest.param(("2x3", "4x3", "..."), "? x 3", id="too-many-to-keep"),
        pytest.param(("2x3", "2"), "2x3 or 2", id="ranks-differ"),
        pytest.param(("scalar",), "scalar", id="zero-dimensional"),
        pytest.param(("1", "1x1", "1x1x1", "1x1x1x1"), "1 or 1x1 or 1x1x1 or ...", id="many-ranks"),
        pytest.param((), "", id="no-shape"),
    ],
)
def test_shapes_are_joined_axis_by_axis(seen, shown):
    assert batch.shape(shapes(*seen)) == shown


def test_containers_have_no_row_unless_they_are_empty():
    split = Split(
        batch_fields={
            "": Field(types={"dict": Tally(1)}),
            "boxes": Field(types={"list": Tally(1)}, shapes={"0": Tally(1)}),
            "image": shapes("2x3"),
        }
    )
    assert [row[0] for row in batch.rows(split)] == ["boxes", "image"]


def test_a_batch_that_is_one_tensor_has_a_name():
    assert batch.rows(Split(batch_fields={"": shapes("2x3")}))[0][0] == "(whole)"


def test_samples_stand_in_when_no_batch_was_made():
    split = Split(fields={"image": shapes("3x4")}, kinds={"image": "mask"})
    assert batch.rows(split) == [("image", "mask", "3x4", "Tensor", "")]


def test_range_is_that_of_the_samples_and_names_bad_values():
    sample = Field(types={"Tensor": Tally(4)}, low=0.0, high=255.0, nonfinite=Tally(2))
    split = Split(fields={"x": sample}, batch_fields={"x": shapes("4")})
    assert batch.rows(split)[0][4] == "0 to 255 (NaN or inf in 2)"


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (-2.11790393, 2.64, "-2.118 to 2.64"),
        (7.0, 7.0, "7"),
        (float("-inf"), float("inf"), "-inf to inf"),
        (1e-9, 1e20, "1e-09 to 1e+20"),
    ],
)
def test_range_is_short(low, high, shown):
    split = Split(batch_fields={"x": Field(types={"float": Tally(1)}, low=low, high=high)})
    assert batch.rows(split)[0][4] == shown
