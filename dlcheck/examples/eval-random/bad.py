"""Both parts of a split hold one dataset object, so the second transform is that of both."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, random_split


class Photos(Dataset):
    """Drawn in place of files: a disc on a sloping ground, as RGB,H,W."""

    def __init__(self, transform=None, n=60, size=40):
        rng = np.random.default_rng(0)
        rows, columns = np.mgrid[0:size, 0:size]
        self.transform = transform
        self.photos = []
        for _ in range(n):
            y, x, radius = rng.integers((10, 10, 4), (30, 30, 10))
            disc = np.hypot(rows - y, columns - x) < radius
            planes = [60 + 3 * rows, 40 + 4 * columns, 200 - 2 * rows]
            photo = np.stack([np.where(disc, 240 - y, plane) for plane in planes])
            self.photos.append(torch.tensor(photo, dtype=torch.float32) / 255)

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, i):
        return self.transform(self.photos[i]), i % 2


def random_crop(photo, size=32):
    y, x = torch.randint(0, photo.shape[1] - size + 1, (2,)).tolist()
    return photo[:, y : y + size, x : x + size]


def centre_crop(photo, size=32):
    start = (photo.shape[1] - size) // 2
    return photo[:, start : start + size, start : start + size]


def make_loader():
    photos = Photos(transform=random_crop)
    train, val = random_split(photos, [48, 12], generator=torch.Generator().manual_seed(0))
    val.dataset.transform = centre_crop  # expect: eval-random
    return {
        "train": DataLoader(train, batch_size=8, shuffle=True),
        "val": DataLoader(val, batch_size=8),
    }
