"""Layout is told from values, wrongly never and seldom not at all; so are scrambles."""

from __future__ import annotations

import collections
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from dlcheck.observers.layout import (  # noqa: E402 - numpy may be absent
    layout_evidence,
    layout_of,
    numbers_of,
    scramble_of,
    state_of,
)

ORDERS = {"HWC": (0, 1, 2), "CHW": (2, 0, 1), "HCW": (0, 2, 1)}
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
Paint = Callable[..., Any]


def chw(picture: Any) -> Any:
    return np.ascontiguousarray(picture.transpose(2, 0, 1))


def gray(picture: Any) -> Any:
    return np.repeat(picture.mean(axis=2, keepdims=True).astype("uint8"), 3, axis=2)


DRESSES = {
    "bytes": lambda x: x,
    "unit floats": lambda x: x.astype("float32") / 255,
    "imagenet": lambda x: ((x / 255 - MEAN) / STD).astype("float32"),
    "own statistics": lambda x: (x - x.mean((0, 1))) / (x.std((0, 1)) + 1e-3),
    "jitter": lambda x: np.clip(x * np.array([0.6, 1.3, 0.9]) + 25, 0, 255).astype("uint8"),
    "gray as rgb": gray,
    "half": lambda x: (x.astype("float32") / 127.5 - 1).astype("float16"),
    "mirrored": lambda x: x[:, ::-1],
    "upside down": lambda x: x[::-1],
    "turned": np.rot90,
    "double": lambda x: x.astype("float64"),
}


def crops(photographs: dict[str, Any], size: int, count: int) -> Iterator[Any]:
    rng = np.random.default_rng(size)
    for picture in photographs.values():
        for _ in range(count):
            y, x = (rng.integers(0, side - size + 1) for side in picture.shape[:2])
            step = 2 if min(picture.shape[0] - y, picture.shape[1] - x) >= 2 * size else 1
            yield picture[y : y + step * size : step, x : x + step * size : step]


@pytest.mark.parametrize("dress", DRESSES.values(), ids=DRESSES)
@pytest.mark.parametrize("order", ORDERS)
def test_painted_pictures_are_told_in_every_dress_and_order(painted, order, dress):
    for seed in range(6):
        picture = dress(painted(seed, 64 + 16 * seed, 96)).transpose(ORDERS[order])
        assert layout_of(picture) == order
        assert layout_of(np.ascontiguousarray(picture)) == order


def test_crops_of_photographs_are_never_told_wrongly_and_seldom_not_at_all(photographs):
    told: collections.Counter[tuple[bool, str]] = collections.Counter()
    dresses = list(DRESSES.values())
    for size in (16, 24, 32, 64, 128, 224):
        for number, crop in enumerate(crops(photographs, size, 6)):
            dressed = dresses[number % len(dresses)](crop)
            for order, axes in ORDERS.items():
                layout = layout_of(dressed.transpose(axes))
                told[size >= 32, "right" if layout == order else layout or "unknown"] += 1
    large = {answer: n for (big, answer), n in told.items() if big}
    assert {answer for _, answer in told} <= {"right", "unknown"}
    assert large.get("unknown", 0) < 0.1 * sum(large.values())


def test_the_evidence_does_not_rest_on_sizes(painted):
    """The sizes of a picture with none of its neighbours: nothing tells."""
    picture = painted(3, 32, 64)
    shuffled = np.random.default_rng(0).permutation(picture.reshape(-1)).reshape(picture.shape)
    assert layout_of(picture) == "HWC"
    assert layout_of(shuffled) == ""


def nothing_to_see() -> Iterator[Any]:
    rng = np.random.default_rng(1)
    walk = np.cumsum(rng.normal(size=(500, 24)), 0)
    lengths = rng.integers(10, 128, (32, 1))
    arrays = {
        "noise": rng.normal(size=(3, 64, 64)),
        "noise, channels last": rng.integers(0, 255, (16, 16, 3)),
        "constant": np.ones((3, 64, 64)),
        "one colour a channel": np.ones((3, 64, 64)) * np.arange(3)[:, None, None],
        "tiny cube": rng.normal(size=(3, 3, 3)),
        "tiny patch": rng.normal(size=(3, 4, 4)),
        "points": rng.normal(size=(1024, 3)),
        "a curve": np.stack([np.sin(np.linspace(0, 6, 999)), np.linspace(0, 1, 999)] * 2, 1)[:, :3],
        "time series": walk,
        "one time series": walk[None],
        "walks of joints": np.cumsum(rng.normal(size=(300, 25, 3)), 0),
        "electrocardiogram": np.cumsum(rng.normal(size=(12, 5000)), 1),
        "tokens": rng.integers(0, 30_000, (64, 128)),
        "boxes": rng.random((30, 4)),
        "attention mask": np.arange(128)[None] < lengths,
        "embedding": rng.normal(size=(3, 77, 96)),
        "one-hot sequence": np.eye(20)[rng.integers(0, 20, 100)],
        "weights": rng.normal(size=(64, 3, 7, 7)),
        "not a number": np.full((3, 32, 32), np.nan),
        "empty": np.zeros((3, 0, 32)),
        "scalar": np.array(3.0),
        "objects": np.array([[None, 1], [2, 3]], object),
        "words": np.array([["a", "b"]] * 9),
        "complex": np.ones((3, 32, 32), complex),
    }
    for name, array in arrays.items():
        yield pytest.param(array, id=name)


@pytest.mark.parametrize("array", list(nothing_to_see()))
def test_what_is_no_picture_has_no_layout(array):
    assert layout_of(array) == ""
    assert scramble_of(array) == {}


def test_one_channel_stands_where_it_stands(painted):
    plane = painted(1)[..., 0]
    assert layout_of(plane) == "HW"
    assert layout_of(plane[None]) == "CHW"
    assert layout_of(plane[..., None]) == "HWC"
    assert layout_of(plane[:, None]) == "HCW"


def test_masks_heatmaps_bands_and_flow_are_told(painted):
    rng = np.random.default_rng(2)
    rows, columns = np.mgrid[:64, :48]
    spots = zip(rng.integers(0, 64, 17), rng.integers(0, 48, 17), strict=True)
    heat = np.stack([np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / 8) for y, x in spots])
    labels = (painted(2)[..., 0] // 30).astype(int)
    masks = np.eye(9)[labels]
    scene = painted(4, 128, 128).astype(float)
    weights = np.array(
        [[1, 0, 0], [0, 0, 1], [0.5, -0.5, 0], [0, 1, 0], [-1, 0, 1], [0.3, 0.3, 0.3]]
    )
    bands = np.moveaxis(scene @ weights.T, 2, 0) + rng.normal(size=(6, 128, 128))
    flow = np.stack([np.sin(rows / 20 + columns / 30), np.cos(rows / 30 - columns / 10)])
    for array in (heat, chw(masks), bands, flow):
        assert layout_of(array) == "CHW"
        assert layout_of(array.transpose(1, 2, 0)) == "HWC"
    assert layout_of(labels > 3) == "HW"


def test_clips_volumes_and_views_are_told_or_left_open(painted):
    scene = painted(5, 160, 200)
    clip = np.stack([scene[2 * t : 2 * t + 80, 3 * t : 3 * t + 100] for t in range(16)])
    for order, axes in {"THWC": (0, 1, 2, 3), "TCHW": (0, 3, 1, 2), "CTHW": (3, 0, 1, 2)}.items():
        assert layout_of(clip.transpose(axes)) == order
    views = np.stack([painted(seed, 64, 64) for seed in range(5)])
    assert layout_of(views) == "NHWC"
    assert layout_of(views.transpose(0, 3, 1, 2)) == "NCHW"
    volume = clip[..., 0].astype(float)
    assert layout_of(volume) == "", "a volume, a clip or narrow bands: nothing tells"
    assert layout_of(volume[None]) in ("CTHW", "")


def test_rot90_of_channels_first_puts_them_in_the_middle(painted):
    assert layout_of(np.rot90(chw(painted(6)))) == "HCW"


def test_the_evidence_can_be_quoted(painted):
    figures = layout_evidence(painted(7))
    assert 0 < figures["axis0.lag1"] < figures["axis0.lag4"] < figures["axis0.lag48"]
    assert "axis2.lag1" in figures
    assert layout_evidence(np.array(["a"])) == {}


@pytest.mark.parametrize("dress", DRESSES.values(), ids=DRESSES)
@pytest.mark.parametrize("sides", [(96, 96), (60, 100), (128, 75)], ids=str)
def test_a_view_in_place_of_a_permute_is_found_both_ways(painted, sides, dress):
    picture = np.ascontiguousarray(dress(painted(8, *sides)))
    height, width, _ = picture.shape
    for shape in ((3, height, width), (3, width, height)):
        found = scramble_of(picture.reshape(shape))
        assert found["period"] == 3
        assert found["axis"] == 2
        assert found["undone"] < 0.6
    found = scramble_of(chw(picture).reshape(height, width, 3))
    assert found["axis"] == 1
    assert found["period"] == round(width / 3)
    assert found["lagC"] < found["lag1"]


def test_colours_side_by_side_show_a_period_of_three(painted):
    found = scramble_of(painted(9).reshape(3, 96, 96))
    assert found["lagC"] < 0.5 * found["lag1"]


def test_a_view_of_a_permuted_view_is_found(painted):
    """reshape copies what is not contiguous, in logical order."""
    assert scramble_of(chw(painted(10)).transpose(1, 2, 0).reshape(3, 96, 96))
    assert scramble_of(painted(10).transpose(2, 0, 1).reshape(96, 96, 3))


def test_scrambled_clips_are_found(painted):
    scene = painted(11, 160, 200)
    clip = np.stack([scene[2 * t : 2 * t + 80, 3 * t : 3 * t + 100] for t in range(8)])
    assert scramble_of(clip.reshape(3, 8, 80, 100))["period"] == 3
    assert scramble_of(clip.reshape(8, 3, 80, 100))["period"] == 3
    first = np.ascontiguousarray(clip.transpose(0, 3, 1, 2))
    assert scramble_of(first.reshape(8, 80, 100, 3))
    for axes in ((0, 1, 2, 3), (0, 3, 1, 2), (3, 0, 1, 2)):
        assert scramble_of(clip.transpose(axes)) == {}


def test_pictures_as_they_should_be_are_not_called_scrambled(photographs):
    dresses = list(DRESSES.values())
    for size in (32, 96, 224):
        for number, crop in enumerate(crops(photographs, size, 6)):
            dressed = dresses[number % len(dresses)](crop)
            for axes in ORDERS.values():
                assert scramble_of(dressed.transpose(axes)) == {}


def test_scrambled_photographs_are_found(photographs):
    found = [
        bool(scramble_of(np.ascontiguousarray(crop).reshape(3, 128, 128)))
        and bool(scramble_of(chw(crop).reshape(128, 128, 3)))
        for crop in crops(photographs, 128, 6)
    ]
    assert statistics.mean(found) > 0.85


def textures() -> Iterator[Any]:
    rows, columns = np.mgrid[:96, :96]
    rng = np.random.default_rng(3)
    planes = {
        "rows of period 3": rows % 3 == 0,
        "columns of period 3": columns % 3 == 0,
        "halftone": (rows + columns) % 3 == 0,
        "fence": columns % 6 < 2,
        "three tiles across": np.tile(rng.random((96, 32)), (1, 3)),
        "waves of a third": np.sin(columns * 2 * np.pi / 32),
        "stripes": rows // 8 % 2 == 0,
        "gradient": rows / 96,
    }
    for name, plane in planes.items():
        yield pytest.param(plane.astype("float64"), id=name)


@pytest.mark.parametrize("plane", list(textures()))
def test_textures_with_a_period_of_their_own_are_not_called_scrambled(painted, plane):
    gray_texture = np.repeat(plane[..., None], 3, axis=2)
    tinted = plane[..., None] * np.array([1, 0.7, 0.3]) + np.array([0.1, 0.3, 0.2])
    over_picture = painted(12) * (0.4 + 0.6 * plane[..., None])
    for picture in (gray_texture, tinted, over_picture):
        assert scramble_of(picture) == {}
        assert scramble_of(chw(picture)) == {}


def test_a_scrambled_picture_has_no_layout(painted):
    state = state_of(painted(13).reshape(3, 96, 96))
    assert state is not None
    assert state.layout == ""
    assert state.scramble["period"] == 3


def test_state_of_an_array_holds_exact_figures(painted):
    picture = painted(14).astype("float32")
    picture[3, 4, 1], picture[5, 6, 2], picture[7, 7, 0] = np.nan, np.inf, -500
    state = state_of(picture[:, ::-1])
    assert state is not None
    assert (state.type, state.dtype, state.shape) == ("ndarray", "float32", (96, 96, 3))
    assert (state.layout, state.low, state.nonfinite) == ("HWC", -500, 2)
    assert state.mean == pytest.approx(float(picture[np.isfinite(picture)].mean()))
    assert state.strides == (1152, -12, 4)
    assert state_of(picture).strides == ()


@pytest.mark.parametrize(
    "value",
    [None, 3, "a", [1], {"a": 1}, object(), np.float32(3)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_array_has_no_state(value):
    assert state_of(value) is None


def test_strange_arrays_have_a_state_and_no_figures():
    strange = [
        np.array([None, 1], object),
        np.zeros(3, [("a", "f4")]),
        np.array(["2020-01-01"], "M8[D]"),
        np.zeros((0, 3)),
        np.ones((3, 32, 32), complex),
    ]
    for array in strange:
        state = state_of(array)
        assert state is not None
        assert (state.shape, state.low, state.layout) == (array.shape, None, "")


def test_an_array_larger_than_memory_is_sampled():
    endless = np.broadcast_to(np.float32(2), (1 << 17, 1 << 17))
    state = state_of(endless)
    assert state is not None
    assert (state.low, state.high) == (2, 2)


def test_a_refusing_subclass_still_has_a_name():
    class Refusing(np.ndarray):
        @property
        def shape(self) -> Any:
            raise RuntimeError

    state = state_of(np.zeros((3, 4)).view(Refusing))
    assert state is not None
    assert state.type == "Refusing"


def test_reading_changes_nothing(painted):
    picture = painted(15)
    picture.flags.writeable = False
    before = picture.copy(), np.random.get_state()[1].tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state_of(picture)
        state_of(np.full((3, 32, 32), np.nan))
    assert (picture == before[0]).all()
    assert np.random.get_state()[1].tolist() == before[1]


def test_a_layout_costs_about_a_millisecond(painted):
    picture = chw(painted(16, 224, 224)).astype("float32")
    times = []
    for _ in range(30):
        start = time.process_time()
        layout_of(picture)
        times.append(time.process_time() - start)
    assert min(times) < 0.002


def test_pil_pictures_are_told_by_mode_and_stay_undecoded(painted, tmp_path):
    picture = pytest.importorskip("PIL.Image")
    image = picture.fromarray(painted(17, 40, 60))
    state = state_of(image)
    assert (state.type, state.dtype, state.shape) == ("PIL.Image", "uint8", (40, 60, 3))
    assert state.layout == "HWC"
    assert state.low is not None
    for mode, dtype in {"L": "uint8", "1": "bool", "I": "int32", "F": "float32"}.items():
        state = state_of(image.convert(mode))
        assert (state.dtype, state.shape, state.layout) == (dtype, (40, 60), "HW")
    image.save(tmp_path / "a.png")
    with picture.open(tmp_path / "a.png") as lazy:
        assert state_of(lazy).low is None
        assert lazy.tile, "looking must not decode"


class TestTensors:
    @pytest.fixture(autouse=True)
    def _torch(self):
        self.torch = pytest.importorskip("torch")

    def test_every_memory_format_and_dtype_is_told(self, painted):
        torch = self.torch
        plain = torch.tensor(chw(painted(18)).tolist(), dtype=torch.float32) / 255
        variants = {
            "uint8": (plain * 255).to(torch.uint8),
            "float16": plain.half(),
            "bfloat16": plain.bfloat16(),
            "float64": plain.double(),
            "int64": (plain * 255).long(),
            "float32": plain[None].contiguous(memory_format=torch.channels_last)[0],
        }
        for dtype, tensor in variants.items():
            state = state_of(tensor)
            assert (state.type, state.dtype, state.layout) == ("Tensor", dtype, "CHW")
            assert state.high == pytest.approx(float(tensor.max()), rel=1e-6)
            assert state.mean == pytest.approx(float(tensor.double().mean()), rel=1e-4)
            assert state_of(tensor.permute(1, 2, 0)).layout == "HWC"
        wanted = plain.clone().requires_grad_()
        assert state_of(wanted).layout == "CHW"

    def test_a_view_in_place_of_permute_is_found_in_tensors(self, painted):
        tensor = self.torch.tensor(painted(19).tolist(), dtype=self.torch.uint8)
        assert state_of(tensor.view(3, 96, 96)).scramble["period"] == 3
        assert state_of(tensor.permute(2, 0, 1)).scramble == {}

    def test_tensors_without_readable_memory_keep_their_shape(self):
        torch = self.torch
        plain = torch.ones(3, 32, 32)
        for tensor in (plain.to("meta"), plain.to_sparse(), plain.to(torch.complex64)):
            state = state_of(tensor)
            assert (state.shape, state.low) == ((3, 32, 32), None)
        assert state_of(torch.zeros(0, 3)).shape == (0, 3)
        assert state_of(torch.tensor(3.0)).low == 3
        assert state_of(torch.zeros(1).expand(3, 64, 64)).high == 0

    def test_the_storage_stays_resizable(self):
        tensor = self.torch.ones(3, 32, 32)
        state_of(tensor)
        tensor.resize_(4, 64, 64)
        assert tensor.shape == (4, 64, 64)

    def test_subclasses_are_read_without_their_code(self, painted):
        class Refusing(self.torch.Tensor):
            @classmethod
            def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
                raise RuntimeError

        plain = self.torch.tensor(chw(painted(20)).tolist())
        state = state_of(plain.as_subclass(Refusing))
        assert (state.type, state.layout) == ("Refusing", "CHW")

    def test_images_of_libraries_are_told(self, painted):
        tv_tensors = pytest.importorskip("torchvision.tv_tensors")
        plain = self.torch.tensor(chw(painted(21)).tolist(), dtype=self.torch.uint8)
        state = state_of(tv_tensors.Image(plain))
        assert (state.type, state.layout) == ("Image", "CHW")

    def test_metatensors_are_told(self, painted):
        monai = pytest.importorskip("monai.data")
        plain = self.torch.tensor(chw(painted(22)).tolist()).float()
        state = state_of(monai.MetaTensor(plain))
        assert (state.type, state.layout) == ("MetaTensor", "CHW")


def test_numbers_of_reads_arrays_alone():
    assert numbers_of(np.arange(3)).tolist() == [0, 1, 2]
    assert numbers_of(np.array(["a"])) is None
    assert math.isclose(float(numbers_of(np.float32([1.5]))[0]), 1.5)
