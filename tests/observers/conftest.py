"""Pictures that look like photographs: made ones everywhere, real ones where packages ship them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Picture = Any


@pytest.fixture(scope="session")
def painted() -> Callable[..., Picture]:
    """Paint a uint8 H,W,3 picture: soft light, discs of many colours, fine grain."""
    np = pytest.importorskip("numpy")

    def paint(seed: int, height: int = 96, width: int = 96) -> Picture:
        rng = np.random.default_rng(seed)
        rows, columns = np.mgrid[:height, :width]
        slope = rng.uniform(-60, 60, (2, 3))
        picture = 128 + slope[0] * (rows / height - 0.5)[..., None]
        picture = picture + slope[1] * (columns / width - 0.5)[..., None]
        for _ in range(25):
            y, x, radius = rng.uniform(0, height), rng.uniform(0, width), rng.uniform(3, height / 4)
            inside = ((rows - y) ** 2 + (columns - x) ** 2 < radius**2)[..., None]
            light = rng.uniform(20, 235) + rng.uniform(-70, 70, 3)
            shade = light + rng.uniform(-0.5, 0.5) * (rows - y)[..., None]
            picture = np.where(inside, shade, picture)
        for axis in (0, 1):
            picture = (picture + np.roll(picture, 1, axis) + np.roll(picture, -1, axis)) / 3
        grain = rng.normal(scale=2.0, size=(height, width, 1))
        return np.clip(picture + grain, 0, 255).astype("uint8")

    return paint


@pytest.fixture(scope="session")
def photographs() -> dict[str, Picture]:
    """Real photographs of scikit-image and scikit-learn, uint8 H,W,3, none downloaded."""
    np = pytest.importorskip("numpy")
    skimage_data = pytest.importorskip("skimage.data")
    folder = Path(skimage_data.__file__).parent
    picture = pytest.importorskip("PIL.Image")
    names = ["astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "ihc.png", "retina.jpg"]
    names += ["hubble_deep_field.jpg", "motorcycle_left.png"]
    found = {}
    for name in names:
        path = folder / name
        if path.exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = np.asarray(picture.open(path).convert("RGB"))
    if len(found) < 4:
        pytest.skip("scikit-image ships no photographs here")
    return found
