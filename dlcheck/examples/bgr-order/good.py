"""cv2.imread gives blue first; cvtColor puts red first, as the statistics of ImageNet are."""

import tempfile
from pathlib import Path

import cv2
import numpy as np
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


def draw(folder, n=40, height=48, width=64):
    """A sky, a hill and a sun: blue above, green below."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[0:height, 0:width]
    for i in range(n):
        y, x, radius = rng.integers((6, 8, 4), (20, 56, 9))
        sun = np.hypot(rows - y, columns - x) < radius
        hill = rows > 30 + 8 * np.sin(columns / 9 + x)
        blue, green, red = 230 - rows * 3, 110 + columns // 2 + 70 * hill, 60 + rows
        planes = [np.where(sun, 90, blue), np.where(sun, 220, green), np.where(sun, 250, red)]
        photo = np.stack(planes, axis=2).clip(0, 255).astype(np.uint8)
        cv2.imwrite(str(folder / f"{i:03d}.png"), photo)
    return folder


class Landscapes(Dataset):
    def __init__(self, folder, transform):
        self.paths = sorted(folder.glob("*.png"))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        image = cv2.cvtColor(cv2.imread(str(self.paths[i])), cv2.COLOR_BGR2RGB)
        return self.transform(image), i % 2


def make_loader():
    transform = transforms.Compose(
        [
            transforms.ToTensor(),
            transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ]
    )
    folder = draw(Path(tempfile.mkdtemp()))
    return DataLoader(Landscapes(folder, transform), batch_size=8, shuffle=True)
