"""Crowd counting: a density map at an eighth of the size, and the count; some squares are empty."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __init__(self, n=48, size=96, stride=8):
        rng = np.random.default_rng(13)
        rows, columns = np.mgrid[:size, :size]
        self.items = []
        for i in range(n):
            image = (100 + 50 * np.sin(rows / 13 + i) + 30 * np.cos(columns / 17)).astype(np.uint8)
            heads = rng.integers(4, size - 4, (0 if i % 8 == 0 else rng.integers(1, 30), 2))
            density = np.zeros((size // stride, size // stride), np.float32)
            for y, x in heads:
                image[y - 2 : y + 3, x - 2 : x + 3] = 240
                density[y // stride, x // stride] += 1
            self.items.append((image, density))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        image, density = self.items[i]
        image = torch.from_numpy(image).float()[None].repeat(3, 1, 1) / 255
        return image, torch.from_numpy(density)[None], float(density.sum())


def make_loader():
    return DataLoader(Squares(), batch_size=8, shuffle=True)
