"""A few photos are smaller than the window; the transform widens them first."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SIZE = 32


def random_crop(photo):
    missing = max(SIZE - photo.shape[0], 0)
    photo = np.pad(photo, ((0, missing), (0, 0), (0, 0)))
    height, width = photo.shape[:2]
    top = torch.randint(height - SIZE + 1, (1,)).item()
    left = torch.randint(width - SIZE + 1, (1,)).item()
    return photo[top : top + SIZE, left : left + SIZE]


class Album(Dataset):
    def __init__(self, n=40, transform=random_crop):
        rng = np.random.default_rng(0)
        shapes = [(24, 40, 3) if i in (5, 23) else (40, 40, 3) for i in range(n)]
        self.photos = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
        self.transform = transform

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, i):
        photo = self.transform(self.photos[i])
        return torch.from_numpy(photo).permute(2, 0, 1).float() / 255, i % 2


def make_loader():
    return DataLoader(Album(), batch_size=8, shuffle=True)
