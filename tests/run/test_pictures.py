"""Contact sheets: what is drawn of an array, and that drawing changes no verdict."""

from __future__ import annotations

import json
import struct
import sys
import textwrap
import zlib
from pathlib import Path
from typing import Any

import pytest

from dlcheck.observation import State, Step
from dlcheck.run import canvas, marks, pictures
from dlcheck.run.pictures import Undo, Way

np = pytest.importorskip("numpy")


def read(path: Path) -> Any:
    """Read a PNG that `canvas.save` wrote, with the standard library."""
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT") + 4
    (size,) = struct.unpack(">I", data[start - 8 : start - 4])
    rows = np.frombuffer(zlib.decompress(data[start : start + size]), np.uint8)
    return rows.reshape(height, 1 + 3 * width)[:, 1:].reshape(height, width, 3)


def disc(size: int = 32) -> Any:
    """A red disc on a blue ground, uint8 H,W,RGB."""
    rows, columns = np.mgrid[0:size, 0:size]
    inside = np.hypot(rows - size // 2, columns - size // 2) < size // 4
    planes = [np.where(inside, 200, 10), np.full((size, size), 20), np.where(inside, 10, 180)]
    return np.stack(planes, axis=2).astype(np.uint8)


def state(array: Any, layout: str = "") -> State:
    ends = float(array.min()), float(array.max())
    return State("ndarray", str(array.dtype), array.shape, layout, *ends)


def test_png_is_what_was_drawn(tmp_path: Path) -> None:
    page = disc()
    canvas.save(page, tmp_path / "a.png")
    assert (read(tmp_path / "a.png") == page).all()


def test_other_readers_take_the_png(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    canvas.save(disc(), tmp_path / "a.png")
    assert (np.asarray(image.open(tmp_path / "a.png")) == disc()).all()


@pytest.mark.parametrize(
    ("array", "layout"),
    [
        (disc(), "HWC"),
        (disc().transpose(2, 0, 1), "CHW"),
        (disc().transpose(0, 2, 1), "HCW"),
        (disc().transpose(2, 0, 1), ""),
        (np.stack([disc()] * 5), "THWC"),
    ],
    ids=["channels last", "channels first", "between", "unknown", "a clip"],
)
def test_array_of_any_layout_is_shown_upright(array: Any, layout: str) -> None:
    shown, _ = pictures.visible(pictures.plane_of(array, state(array, layout)))
    assert (shown == disc()).all()


@pytest.mark.parametrize("array", [np.zeros(7), np.zeros((2, 5, 9, 9)), np.array(["a"])])
def test_no_picture_of_what_is_none(array: Any) -> None:
    looks = State("ndarray", str(array.dtype), array.shape)
    assert pictures.plane_of(array, looks) is None


def normalised() -> tuple[Any, list[Step]]:
    """A picture on its way from bytes to ImageNet's statistics, channels first."""
    raw = disc()
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    scaled = raw / np.float32(255)
    final = ((scaled - mean) / std).transpose(2, 0, 1).astype(np.float32)
    known = {"file": "data.py", "function": "__getitem__", "text": "", "fields": ("x",)}
    steps = [
        Step(line=5, variable="x", stage="ToDtype", before=state(raw, "HWC"),
             after=state(scaled, "HWC"), scale=(1 / 255,), offset=(0.0,), **known),
        Step(line=6, variable="x", stage="Normalize", before=state(scaled, "HWC"),
             after=state(final, "CHW"), scale=tuple(1 / std), offset=tuple(-mean / std), **known),
    ]  # fmt: skip
    return final, steps


def test_normalised_picture_gets_its_colours_back() -> None:
    final, steps = normalised()
    plane = pictures.plane_of(final, steps[-1].after)
    shown, how = pictures.visible(plane, pictures.undo_of(steps))
    assert how == "denormalised"
    assert np.abs(shown.astype(int) - disc()).max() <= 1


def test_picture_of_unknown_range_is_stretched_and_says_so() -> None:
    final, _ = normalised()
    shown, how = pictures.visible(pictures.plane_of(final, state(final, "CHW")))
    assert (how, int(shown.min()), int(shown.max())) == ("stretched", 0, 255)


def test_wrong_way_back_is_not_believed() -> None:
    """Values far outside 0..1 after the way back: something else happened to them."""
    final, _ = normalised()
    plane = pictures.plane_of(final, state(final, "CHW"))
    assert pictures.visible(plane, Undo((0.001,) * 3, (0.0,) * 3))[1] == "stretched"


def test_nan_is_red() -> None:
    array = np.full((8, 8), 0.5, np.float32)
    array[2, 3] = np.nan
    shown, _ = pictures.visible(array[:, :, None])
    assert tuple(shown[2, 3]) == canvas.RED


def test_label_map_is_painted_by_its_ids_and_a_grey_picture_is_not() -> None:
    ids = np.zeros((16, 16), np.uint8)
    ids[4:9] = 1
    ids[12:] = 255
    shown, how = pictures.visible(ids[:, :, None])
    assert how == "ids"
    assert [tuple(shown[row, 0]) for row in (0, 5, 13)] == [
        (0, 0, 0), canvas.PALETTE[0], (255, 255, 255),
    ]  # fmt: skip
    grey = (np.arange(256).reshape(16, 16)).astype(np.uint8)
    assert pictures.visible(grey[:, :, None])[1] == ""


FACTS = marks.Facts(lambda array: state(array) if getattr(array, "ndim", 0) > 1 else None)


def marked(**found: Any) -> Any:
    """A black 20x20 picture, twice as large, with its marks drawn."""
    picture = np.zeros((40, 40, 3), np.uint8)
    marks.draw(marks.Sheet(picture, "image", (20, 20), 2.0), found, FACTS)
    return picture


@pytest.mark.parametrize(
    ("order", "box"),
    [("xyxy", [5, 5, 15, 10]), ("xywh", [5, 5, 10, 5]), ("cxcywh", [10, 7.5, 10, 5]),
     ("xyxyn", [0.25, 0.25, 0.75, 0.5])],
)  # fmt: skip
def test_box_of_any_format_is_drawn_where_it_lies(order: str, box: list[float]) -> None:
    picture = np.zeros((40, 40, 3), np.uint8)
    facts = marks.Facts(FACTS.describe, fields={"boxes": {"format": order}})
    marks.draw(marks.Sheet(picture, "image", (20, 20), 2.0), {"boxes": np.array([box])}, facts)
    rows, columns = np.nonzero(picture.any(axis=2))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (10, 20, 10, 30)


def test_mask_is_a_veil_and_points_are_dots() -> None:
    mask = np.zeros((20, 20), np.int64)
    mask[10:] = 2
    veiled = marked(mask=mask)
    assert not veiled[:20].any()
    assert veiled[20:].any(axis=2).all()
    dotted = marked(keypoints=np.array([[3.0, 15.0, 1.0]]))
    assert dotted[30, 6].any()


def test_marks_outside_the_picture_are_cut() -> None:
    assert not marked(boxes=np.array([[-90.0, -90, -50, -50]])).any()
    marked(boxes=np.array([[-5.0, 5, 500, 900]]), keypoints=np.array([[-4.0, 1e4]]))


@pytest.mark.parametrize(
    ("batch", "first"),
    [
        ((np.zeros((2, 3, 4, 4)), np.array([7, 8])), ("array", 7)),
        ({"x": np.zeros((2, 3)), "y": [5, 6]}, {"x": "array", "y": 5}),
        ([{"y": 1}, {"y": 2}], {"y": 1}),
        ((("a", "b"), ({"y": 1}, {"y": 2})), ("a", {"y": 1})),
    ],
    ids=["tensors", "dict", "a list of samples", "detection's tuples"],
)
def test_batch_is_parted_into_its_samples(batch: Any, first: Any) -> None:
    items = pictures.unbatched(batch, 2)
    assert len(items) == 2
    shown = {"ndarray": "array"}

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: named(one) for key, one in value.items()}
        if isinstance(value, tuple):
            return tuple(map(named, value))
        return shown.get(type(value).__name__, value)

    assert named(items[0]) == first


def way(sample: int, *stages: str) -> Way:
    gallery = pictures.Gallery(lambda array: state(array, "HWC"))
    known = {"file": "data.py", "line": 3, "function": "f", "text": "", "variable": "x"}
    steps = []
    for stage in stages:
        after = gallery.state(disc())
        assert after is not None
        steps.append(Step(stage=stage, after=after, fields=("x",), **known))
    return Way(sample, tuple(steps), {"x": state(disc())}, gallery)


def test_stages_of_the_samples_stand_in_line() -> None:
    """A stage that only some samples pass gets a row of its own, in its place."""
    ways = [way(0, "Read", "Cast"), way(1, "Read", "Flip", "Cast")]
    rows = pictures.rows_of(ways)
    assert [next(iter(row.values())).stage for row in rows] == ["Read", "Flip", "Cast"]
    assert [len(row) for row in rows] == [2, 1, 2]
    page = pictures.journey_sheet(ways)
    assert page.shape[1] == pictures.LABEL_WIDTH + 2 * pictures.COLUMN


PIPELINE = """
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Discs(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            rows, columns = np.mgrid[0:32, 0:32]
            image = np.stack([rows * 8, columns * 8, (rows + i) * 4], axis=2).astype(np.uint8)
            image = torch.from_numpy(image).permute(2, 0, 1).float() / 255
            return {BAD}, i % 2

    def make_loader():
        return DataLoader(Discs(), batch_size=4)
"""


@pytest.mark.parametrize(("returned", "status"), [("image", 0), ("image.permute(1, 2, 0)", 1)])
def test_verdict_is_the_same_with_pictures(
    run_dlcheck: Any, tmp_path: Path, returned: str, status: int
) -> None:
    pytest.importorskip("torch")
    source = textwrap.dedent(PIPELINE).replace("{BAD}", returned)
    (tmp_path / "discs.py").write_text(source)
    bare = run_dlcheck("shapes", "discs.py:make_loader", "--format", "json")
    drawn = run_dlcheck("shapes", "discs.py:make_loader", "--format", "json", "--images", "sheets")
    one, other = json.loads(bare.stdout), json.loads(drawn.stdout)
    for key in ("verdict", "findings", "rules"):
        assert one[key] == other[key]
    assert (bare.returncode, drawn.returncode) == (status, status)
    assert "pictures in" in drawn.stderr
    written = {path.name for path in (tmp_path / "sheets").glob("*.png")}
    assert written >= {"journey.png", "batch.png"}
    assert read(tmp_path / "sheets" / "batch.png").std() > 20


def test_folder_that_cannot_be_made_is_a_usage_error(run_dlcheck: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_dlcheck("shapes", "x.py:y", "--images", "file/sheets")
    assert done.returncode == 2
    assert "no folder that can be written to" in done.stderr


def test_words_are_left_out_where_nothing_can_write_them(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "cv2", None)
    page = canvas.blank(20, 60)
    canvas.write(page, "words", 2, 2)
    assert (page == 255).all()
    assert canvas.fit(np.zeros((300, 200, 3), np.uint8))[0].shape == (128, 85, 3)
