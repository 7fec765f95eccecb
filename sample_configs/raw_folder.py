"""Two folders that hand on pictures as a reader gives them, without settling their channels."""

import cv2
import numpy as np
from PIL import Image
from shape_folder import CLASSES, ShapeFolder, draw_folder, draw_shape, drawn

HEIGHT, WIDTH = 96, 112
HORIZON = 0.6


def draw_sunsets(folder, per_class=12):
    """Shapes before a red evening sky over a blue sea: colours that cannot be taken for others."""
    rng = np.random.default_rng(2)
    rows = np.linspace(0, 1, HEIGHT)[:, None, None]
    sky, sea = np.array([60, 90, 240]), np.array([190, 70, 30])
    for kind in CLASSES:
        (folder / kind).mkdir()
        for number in range(per_class):
            glow = sky + rows * np.array([40, 110, 0])
            image = np.broadcast_to(np.where(rows < HORIZON, glow, sea), (HEIGHT, WIDTH, 3))
            image = np.ascontiguousarray(image, dtype=np.uint8)
            colour = tuple(int(value) for value in rng.integers((20, 80, 160), (80, 160, 255)))
            x, y = (int(value) for value in rng.integers((30, 30), (82, 66)))
            draw_shape(image, kind, (x, y), int(rng.integers(14, 24)), colour)
            cv2.imwrite(str(folder / kind / f"{number:03d}.png"), image)


def draw_with_scan(folder):
    draw_folder(folder)
    scan = folder / "circle" / "011.png"
    cv2.imwrite(str(scan), cv2.imread(str(scan), cv2.IMREAD_GRAYSCALE))


class BlueFirstFolder(ShapeFolder):
    """Return images as cv2.imread gives them."""

    def __init__(self, transform=None):
        super().__init__(drawn("sunsets", draw_sunsets), transform)

    def __getitem__(self, index):
        path = self.paths[index]
        image = cv2.imread(str(path))
        return self.transform(image), CLASSES.index(path.parent.name)


class AsSavedFolder(ShapeFolder):
    """Return images in the mode in which their files hold them."""

    def __init__(self, transform=None):
        super().__init__(drawn("scans", draw_with_scan), transform)

    def __getitem__(self, index):
        path = self.paths[index]
        image = Image.open(path)
        return self.transform(image), CLASSES.index(path.parent.name)
