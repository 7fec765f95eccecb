"""A folder of pictures, one of them grey; every picture is brought to three channels."""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import ToTensor


def draw(folder, n=40, size=48):
    rows, columns = np.mgrid[0:size, 0:size]
    for i in range(n):
        ring = np.hypot(rows - 12 - i % 24, columns - 24) < 6 + i % 9
        planes = [rows * 4, columns * 4, 180 - rows * 3]
        picture = np.stack([np.where(ring, 230, plane) for plane in planes], axis=2)
        image = Image.fromarray(picture.astype(np.uint8))
        (image.convert("L") if i == 17 else image).save(folder / f"{i:03d}.png")
    return folder


class Pictures(Dataset):
    def __init__(self, folder, transform=None):
        self.paths = sorted(folder.glob("*.png"))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        image = Image.open(self.paths[i]).convert("RGB")
        return self.transform(image), i % 2


def make_loader():
    folder = draw(Path(tempfile.mkdtemp()))
    return DataLoader(Pictures(folder, transform=ToTensor()), batch_size=8, shuffle=True)
