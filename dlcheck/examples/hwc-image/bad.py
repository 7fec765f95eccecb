"""Photos become tensors as they lie in memory, H,W,C, and no stage moves the channels forward."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Landscapes(Dataset):
    """Drawn in place of files: a sky, a hill and a sun, as H,W,RGB."""

    def __init__(self, n=40, height=48, width=64):
        rng = np.random.default_rng(0)
        rows, columns = np.mgrid[0:height, 0:width]
        self.photos = []
        for _ in range(n):
            y, x, radius = rng.integers((6, 8, 4), (20, 56, 9))
            sun = np.hypot(rows - y, columns - x) < radius
            hill = rows > 30 + 8 * np.sin(columns / 9 + x)
            planes = [90 + rows + 60 * hill, 140 + columns // 2 - 40 * hill, 230 - rows * 3]
            photo = np.stack([np.where(sun, 250, plane) for plane in planes], axis=2)
            photo = photo + rng.normal(0, 2, photo.shape)
            self.photos.append(photo.clip(0, 255).astype(np.uint8))

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, i):
        image = torch.from_numpy(self.photos[i])  # expect: hwc-image
        return image.float() / 255, i % 2

def make_loader():
    return DataLoader(Landscapes(), batch_size=8, shuffle=True)
