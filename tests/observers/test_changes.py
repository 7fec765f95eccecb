"""What pairs of numbers tell of a stage; near misses give no answer."""

from __future__ import annotations

from typing import Any

import pytest

from dlcheck.observation import Opened, State, Step
from dlcheck.observers.pixels import Pixels

np = pytest.importorskip("numpy")

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def smooth(shape: tuple[int, ...] = (96, 96, 3), low: float = 0, high: float = 255) -> Any:
    """A picture of broad waves that reaches from low to high."""
    rows, columns = np.indices(shape[:2])
    planes = [np.sin(rows / (9 + k) + k) + np.cos(columns / (13 - k)) for k in range(shape[-1])]
    picture = np.stack(planes, -1)
    picture = (picture - picture.min()) / (picture.max() - picture.min())
    return (low + picture * (high - low)).astype(np.uint8)


def step_of(before: Any, after: Any) -> Step:
    pixels = Pixels()
    known = {"file": "a.py", "line": 3, "function": "f", "text": "", "variable": "x", "stage": "s"}
    step = Step(**known, before=pixels.state(before), after=pixels.state(after))
    return pixels.told([step])[0]


def noise(std: float = 13, shape: tuple[int, ...] = (96, 96, 3)) -> Any:
    return np.random.default_rng(0).normal(0, std, shape)


PICTURE = smooth()
WRAPPED = {
    "noise": PICTURE + noise().astype(np.int16).astype(np.uint8),
    "an offset": PICTURE + np.uint8(40),
    "less": PICTURE - np.uint8(30),
    "a factor": PICTURE * np.uint8(2),
    "a cast after a factor": (PICTURE * 1.5).astype(np.uint8),
    "a cast after noise": (PICTURE + noise(20)).astype(np.int16).astype(np.uint8),
}


@pytest.mark.parametrize("after", WRAPPED.values(), ids=WRAPPED)
def test_bytes_that_run_over_are_counted(after):
    over = np.abs(after.astype(int) - PICTURE) > 128
    assert 0.2 * over.mean() < step_of(PICTURE, after).wraps < max(4 * over.mean(), 0.5)


def test_a_cast_of_floats_beyond_255_wraps_by_the_share_beyond():
    bright = PICTURE.astype(np.float32) * 1.4
    share = float((bright >= 256).mean())
    wraps = step_of(bright, bright.astype(np.int32).astype(np.uint8)).wraps
    assert wraps == pytest.approx(share, rel=0.2)


def pasted(value: Any) -> Any:
    picture = PICTURE.copy()
    picture[20:60, 10:70] = value
    return picture


RIGHT = {
    "clipped noise": np.clip(PICTURE + noise(), 0, 255).astype(np.uint8),
    "clipped brightness": np.clip(PICTURE.astype(int) + 60, 0, 255).astype(np.uint8),
    "inverted": 255 - PICTURE,
    "solarised": np.where(PICTURE > 128, 255 - PICTURE, PICTURE),
    "thresholded": ((PICTURE > 128) * 255).astype(np.uint8),
    "posterised": PICTURE & 0xC0,
    "gamma": (255 * (PICTURE / 255) ** 2).astype(np.uint8),
    "flipped": PICTURE[:, ::-1],
    "shifted": np.roll(PICTURE, 20, 1),
    "channels swapped": PICTURE[..., ::-1],
    "black patch": pasted(0),
    "white patch": pasted(255),
    "random patch": pasted(np.random.default_rng(1).integers(0, 256, (40, 60, 3))),
    "another picture's patch": pasted(smooth()[::-1][20:60, 10:70]),
    "salt and pepper": np.where(noise() > 30, 255, np.where(noise() < -30, 0, PICTURE)).astype(
        "u1"
    ),
    "another picture": np.ascontiguousarray(PICTURE.transpose(1, 0, 2)),
}


def test_black_and_white_that_were_moved_or_inverted_did_not_run_over():
    rows, columns = np.indices((96, 96)) // 10
    board = np.repeat(((rows + columns) % 2 * 255).astype(np.uint8)[..., None], 3, -1)
    board[30:60, 30:60] = PICTURE[30:60, 30:60] // 2 + 60
    for after in (255 - board, np.roll(board, 5, 1), board[::-1], np.roll(board, 10, 0)):
        assert step_of(board, np.ascontiguousarray(after)).wraps == 0


def drawn(seed: int) -> Any:
    """Boxes and soft-edged discs in a few colours: many grey levels along the edges."""
    rng = np.random.default_rng(seed)
    rows, columns = np.indices((64, 70))
    picture = np.full((64, 70, 3), rng.integers(0, 256, 3).astype(float))
    for _ in range(rng.integers(3, 12)):
        top, left, size = rng.integers(0, 64), rng.integers(0, 70), rng.integers(3, 40)
        far = np.hypot(rows - top, columns - left)
        if rng.random() < 1 / 2:
            far = np.maximum(abs(rows - top), abs(columns - left))
        cover = np.clip(size - far + 1 / 2, 0, 1)[..., None]
        colour = rng.integers(0, 256, 3) if rng.random() < 1 / 2 else rng.choice([0, 255], 3)
        picture = picture * (1 - cover) + colour * cover
    return picture.astype(np.uint8)


@pytest.mark.parametrize("seed", range(40))
def test_numbers_that_only_moved_did_not_run_over(seed):
    picture = drawn(seed)
    moved = (picture[:, ::-1], picture[::-1], np.roll(picture, 9, 1), picture[..., ::-1])
    for after in (*moved, np.random.default_rng(seed).permutation(picture)):
        assert step_of(picture, after).wraps == 0


@pytest.mark.parametrize("after", RIGHT.values(), ids=RIGHT)
def test_no_wrap_is_seen_where_pixels_were_replaced_or_clipped(after):
    assert step_of(PICTURE, after).wraps == 0


def test_noise_of_its_own_is_no_picture_that_wraps():
    assert step_of(noise(), noise().astype(np.int16).astype(np.uint8)).wraps == 0


def test_hashed_ids_are_taken_modulo_on_purpose():
    ids = np.random.default_rng(0).integers(0, 1 << 40, (64, 64))
    assert step_of(ids, (ids % 256).astype(np.uint8)).wraps == 0


def test_a_division_by_255_is_one_line_for_all():
    step = step_of(PICTURE, (PICTURE / 255).astype(np.float32))
    assert step.scale == pytest.approx((1 / 255,), rel=1e-4)
    assert step.offset == pytest.approx((0,), abs=1e-6)


def test_a_division_that_also_moves_the_axes_is_read_off_the_ends():
    step = step_of(PICTURE, (PICTURE / 255).astype(np.float32).transpose(2, 0, 1))
    assert step.scale == pytest.approx((1 / 255,), rel=1e-4)


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1)], ids=["channels last", "channels first"])
def test_a_normalisation_gives_its_mean_and_std_by_channel(axes):
    unit = (PICTURE / 255).astype(np.float32)
    step = step_of(unit.transpose(axes), ((unit - MEAN) / STD).astype("f4").transpose(axes))
    assert [-o / s for s, o in zip(step.scale, step.offset, strict=True)] == pytest.approx(
        MEAN, abs=1e-3
    )
    assert [1 / s for s in step.scale] == pytest.approx(STD, abs=1e-3)


def test_what_is_no_line_has_no_scale():
    unit = (PICTURE / 255).astype(np.float32)
    for after in (unit**2, np.clip(unit * 2, 0, 1), unit[:, ::-1], unit):
        assert step_of(unit, after).scale == ()


def label_map() -> Any:
    labels = np.zeros((96, 96), np.uint8)
    labels[20:70, 30:60] = 5
    labels[50:90, 50:90] = 2
    return labels


def resized(labels: Any, size: int, *, blend: bool) -> Any:
    """Sample a map at places between its pixels: the nearest, or a blend of the four around."""
    at = (np.arange(size) + 0.5) * len(labels) / size - 0.5
    if not blend:
        places = np.rint(at).astype(int)
        return labels[np.ix_(places, places)]
    low = np.clip(np.floor(at).astype(int), 0, len(labels) - 2)
    part = np.clip(at - low, 0, 1)
    rows = labels[low] * (1 - part)[:, None] + labels[low + 1] * part[:, None]
    columns = rows[:, low] * (1 - part) + rows[:, low + 1] * part
    return np.rint(columns).astype(np.uint8)


@pytest.mark.parametrize("size", [40, 64, 150])
def test_a_blended_map_has_ids_that_are_not_there(size):
    assert step_of(label_map(), resized(label_map(), size, blend=True)).invented > 0.002


@pytest.mark.parametrize("size", [24, 40, 64, 150])
def test_a_map_of_nearest_pixels_invents_nothing(size):
    assert step_of(label_map(), resized(label_map(), size, blend=False)).invented == 0


def test_a_cropped_or_flipped_map_invents_nothing():
    labels = label_map()
    for after in (labels[10:74, 5:69], resized(labels[:, ::-1], 64, blend=False), labels[::-1]):
        assert step_of(labels, np.ascontiguousarray(after)).invented == 0


def test_ids_are_told_of_arrays_with_few_values_only():
    pixels = Pixels()
    assert pixels.state(label_map()).ids == (0, 2, 5)
    assert pixels.state(label_map().astype(np.float32) / 255).ids[0] == 0
    assert pixels.state(PICTURE).ids == ()
    assert pixels.state(np.full((20, 20), 3)).ids == ()


def test_a_line_that_reads_a_file_and_goes_on_is_compared_with_the_file():
    pixels = Pixels()
    after = pixels.state(resized(label_map(), 64, blend=True))
    step = Step("a.py", 3, "f", "mask = resize(open(path), 64)", "mask", "resize", after)
    opened = [Opened("m.png", "PIL.Image.open", file="a.py", line=3)]
    told = pixels.told([step], opened, lambda path: label_map())[0]
    assert told.before.ids == (0, 2, 5)
    assert told.invented > 0
    elsewhere = [Opened("m.png", "PIL.Image.open", file="a.py", line=2)]
    assert pixels.told([step], elsewhere, lambda path: label_map())[0].before is None


def test_states_that_were_not_kept_give_no_answer():
    known = {"file": "a.py", "line": 3, "function": "f", "text": "", "variable": "x", "stage": "s"}
    step = Step(**known, before=State("ndarray"), after=State("ndarray"))
    assert Pixels().told([step]) == (step,)
