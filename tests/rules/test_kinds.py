"""A field's kind: right or unknown, from what the config says, types, names and looks."""

from __future__ import annotations

from typing import Any

import pytest

from dlcheck.observation import Field, Journey, Split, State, Tally
from dlcheck.rules.kinds import GUESS, Kind, is_target, kind, kinds


def leaf(
    shape: str, dtype: str = "float32", low: float = -2.0, high: float = 2.0, **more: Any
) -> Field:
    known = {"types": {"Tensor": Tally(100)}} | more
    return Field(
        dtypes={dtype: Tally(100)}, shapes={shape: Tally(100)}, low=low, high=high, **known
    )


def ids(*values: int, n: int = 50) -> dict[str, Tally]:
    return {str(value): Tally(n, (0,)) for value in values}


def integer(*values: int, n: int = 50) -> Field:
    return Field({"int": Tally(100)}, low=min(values), high=max(values), values=ids(*values, n=n))


IMAGE = leaf("3x64x64")


@pytest.mark.parametrize(
    ("name", "seen", "layout", "expected"),
    [
        ("0", leaf("3x64x64"), "CHW", "image"),
        ("0", leaf("64x64x3", "uint8", 0, 255), "HWC", "image"),
        ("0", leaf("1x28x28"), "CHW", "image"),
        ("0", leaf("4x64x64"), "CHW", "image"),
        ("0", leaf("13x64x64"), "CHW", "image"),
        ("image", leaf("3x3x3"), "", "image"),
        ("boxes", leaf("5x4", low=0, high=80), "", "boxes"),
        ("keypoints", leaf("17x3"), "", "keypoints"),
        ("mask", leaf("64x64", "int64", 0, 20, values=ids(0, 3, 20)), "", "mask"),
        ("depth", leaf("1x64x64", low=0, high=10), "CHW", "target"),
        ("flow", leaf("2x64x64"), "", "target"),
        ("heatmap", leaf("17x16x16"), "CHW", "target"),
        ("input_ids", leaf("64", "int64", 0, 30_000), "", "tokens"),
        ("labels", leaf("64", "int64", -100, 30_000, values={"...": Tally(9)}), "", "tokens"),
        ("waveform", leaf("1x16000"), "", "audio"),
        ("clip", leaf("3x8x64x64"), "CTHW", "video"),
        ("label", integer(0, 1, 2), "", "label"),
        ("target", leaf("14", low=0, high=1), "", "label"),
        ("path", Field({"str": Tally(5)}), "", "other"),
    ],
)
def test_what_names_and_axes_tell(name: str, seen: Field, layout: str, expected: str) -> None:
    state = State("Tensor", "float32", next(iter(_shapes(seen)), None), layout)
    journeys = {"0": Journey(0, fields={name: state})} if layout else {}
    found = kind(Split(fields={name: seen}, journeys=journeys), name)
    assert found.sure(expected), found


def _shapes(seen: Field) -> list[tuple[int, ...]]:
    return [tuple(map(int, text.split("x"))) for text in seen.shapes if text != "scalar"]


@pytest.mark.parametrize(
    ("why", "name", "seen"),
    [
        ("a cloud of points is no image", "0", leaf("1024x3")),
        ("a patch of three by three may be anything", "0", leaf("3x3x3")),
        ("text, time first", "0", leaf("120x80")),
        ("five crops of one image", "0", leaf("5x3x56x56")),
        ("bands and windows of a spectrum", "0", leaf("1x30x9x9")),
        ("an index is no label", "1", integer(*range(60), n=1)),
        ("a height is no label", "2", integer(70, 71, 80, 95)),
        ("a row of features", "0", leaf("64")),
        ("a container has no kind", "0", Field({"dict": Tally(3)})),
    ],
)
def test_unknown_rather_than_wrong(why: str, name: str, seen: Field) -> None:
    found = kind(Split(fields={name: seen}), name)
    assert found.confidence < GUESS, (why, found)


def test_planes_beside_the_image_are_no_image() -> None:
    """Heatmaps and disparity stand after the input, with other channels."""
    fields = {"0": IMAGE, "1": leaf("4x24x18"), "2": leaf("1x64x64")}
    states = {
        "0": State("Tensor", "float32", (3, 64, 64), "CHW"),
        "1": State("Tensor", "float32", (4, 24, 18), "CHW"),
        "2": State("Tensor", "float32", (1, 64, 64), "CHW"),
    }
    split = Split(fields=fields, journeys={"0": Journey(0, fields=states)})
    found = kinds(split)
    assert found["0"].sure("image")
    assert not found["1"].sure("image")
    assert not found["2"].sure("image")
    assert is_target(split, "2")
    assert not is_target(split, "0")


def test_the_second_of_a_pair_is_an_image_too() -> None:
    fields = {"0": IMAGE, "1": IMAGE}
    state = State("Tensor", "float32", (3, 64, 64), "CHW")
    split = Split(fields=fields, journeys={"0": Journey(0, fields={"0": state, "1": state})})
    assert kind(split, "1").sure("image")


def test_what_the_config_declares_counts_first() -> None:
    split = Split(fields={"image": IMAGE}, given={"fields": {"image": {"kind": "target"}}})
    assert kind(split, "image") == Kind("target", 1.0, "declared in fields")


def test_declared_classes_make_a_label() -> None:
    split = Split(fields={"1": integer(0, 7)}, given={"expect": {"1": {"classes": 8}}})
    assert kind(split, "1").sure("label", at_least=0.9)
