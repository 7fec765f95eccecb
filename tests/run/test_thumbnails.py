"""Thumbnails: small pictures of what each traced step made, and of a batch."""

from __future__ import annotations

import base64
import struct

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("torch")

from dlcheck.observation import Journey, State, Step  # noqa: E402
from dlcheck.observers.layout import state_of  # noqa: E402
from dlcheck.run import thumbnails  # noqa: E402
from dlcheck.run.pictures import Gallery  # noqa: E402
from dlcheck.run.target import Target  # noqa: E402


def traced(arrays, fields=("image",)) -> tuple[Journey, Gallery]:
    gallery = Gallery(state_of)
    states = [gallery.state(array) for array in arrays]
    steps = tuple(
        Step("data.py", n, "get", "", "x", f"stage {n}", state or State("int"), fields=fields)
        for n, state in enumerate(states)
    )
    return Journey(3, steps, {"image": states[-1]}), gallery


def size_of(uri: str) -> tuple[int, int]:
    head, _, data = uri.partition(",")
    assert head == "data:image/png;base64"
    width, height = struct.unpack(">II", base64.b64decode(data)[16:24])
    return width, height


def test_each_step_that_made_a_picture_has_one_under_its_number():
    journey, gallery = traced([np.zeros((48, 64, 3), "uint8"), 7, np.zeros((3, 24, 32), "float32")])
    found = thumbnails.of_way(journey, gallery)
    assert sorted(found) == ["3/0", "3/2"]
    assert (found["3/0"].width, found["3/0"].height) == size_of(found["3/0"].uri) == (128, 96)


def test_a_step_that_led_to_no_field_is_left_out():
    journey, gallery = traced([np.zeros((48, 64, 3), "uint8")] * 2, fields=())
    assert thumbnails.of_way(journey, gallery) == {}


def test_of_a_long_way_both_ends_are_drawn():
    journey, gallery = traced([np.full((8, 8, 3), n, "uint8") for n in range(50)])
    found = thumbnails.of_way(journey, gallery)
    assert len(found) == thumbnails.MOST_STEPS
    assert {"3/0", "3/49"} <= set(found)


def test_a_photo_is_kept_as_jpeg_where_that_is_smaller():
    pytest.importorskip("PIL")
    noise = np.random.default_rng(0).normal(128, 20, (128, 128, 3)).clip(0, 255).astype("uint8")
    kind, data = thumbnails.encoded(noise)
    assert kind == "jpeg"
    assert data[:2] == b"\xff\xd8"
    assert len(data) < 20_000


def test_items_of_a_batch_are_drawn_with_their_labels():
    from torch.utils.data import DataLoader

    data = [(np.full((3, 16, 16), n / 4, "float32"), n) for n in range(4)]
    target = Target(DataLoader(data, batch_size=4), data)
    found = thumbnails.of_batch(target, ("image", "label"), {}, None)
    assert [picture.key for picture in found.values()] == [f"batch/{n}" for n in range(4)]
    assert [picture.caption for picture in found.values()] == ["0", "1", "2", "3"]
