"""A folder of images, one subfolder a class, read with OpenCV. Drawn on first use."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from torch.utils.data import Dataset

DATA = Path(__file__).resolve().parent / "data"
CLASSES = ("circle", "square", "triangle")


def mat(height: int, width: int, square: int = 10) -> np.ndarray:
    """A black and white checkerboard, as calibration mats have it."""
    rows, columns = np.indices((height, width)) // square
    board = ((rows + columns) % 2 * 255).astype(np.uint8)
    return cv2.cvtColor(board, cv2.COLOR_GRAY2BGR)


def draw_shape(image: np.ndarray, kind: str, centre: tuple[int, int], radius: int, colour) -> None:
    x, y = centre
    if kind == "circle":
        cv2.circle(image, centre, radius, colour, thickness=-1)
    elif kind == "square":
        cv2.rectangle(image, (x - radius, y - radius), (x + radius, y + radius), colour, -1)
    else:
        corners = [(x, y - radius), (x + radius, y + radius), (x - radius, y + radius)]
        cv2.fillPoly(image, [np.array(corners, dtype=np.int32)], colour)


def draw_folder(folder: Path, per_class: int = 16) -> None:
    rng = np.random.default_rng(0)
    for kind in CLASSES:
        (folder / kind).mkdir()
        for number in range(per_class):
            height, width = (int(side) for side in rng.integers(88, 121, size=2))
            image = mat(height, width)
            colour = tuple(int(value) for value in rng.integers(40, 216, size=3))
            draw_shape(image, kind, (width // 2, height // 2), int(rng.integers(16, 27)), colour)
            cv2.imwrite(str(folder / kind / f"{number:03d}.png"), image)


def drawn(name: str, draw: Callable[[Path], None]) -> Path:
    """The folder `name` under data/, drawn if it is not there yet.

    Drawn elsewhere and then renamed: two processes that start at once both find it whole.
    """
    folder = DATA / name
    if folder.is_dir():
        return folder
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".drawing-", dir=DATA) as room:
        draft = Path(room) / name
        draft.mkdir()
        draw(draft)
        try:
            draft.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


class ShapeFolder(Dataset):
    """Return (image, label): the image as H,W,RGB uint8 until a transform changes it."""

    def __init__(self, root=None, transform=None):
        root = Path(root) if root else drawn("shapes", draw_folder)
        self.paths = sorted(root.glob("*/*.png"))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
        if self.transform is not None:
            image = self.transform(image)
        return image, CLASSES.index(path.parent.name)
