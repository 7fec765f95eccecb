"""Sentinel-2 tiles of 13 bands, uint16 reflectance scaled by 10,000, some pixels under no data."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

MEAN = torch.linspace(0.1, 0.3, 13)[:, None, None]
STD = torch.linspace(0.03, 0.12, 13)[:, None, None]


class Tiles(Dataset):
    def __init__(self, n=48, size=64):
        rng = np.random.default_rng(2)
        rows, columns = np.mgrid[:size, :size] / size
        self.tiles, self.labels = [], []
        for i in range(n):
            label = i % 5
            field = np.sin(rows * (3 + label) * 2 + rng.uniform(0, 6)) * np.cos(columns * 4)
            spectrum = np.linspace(800, 3200, 13) * (1 + 0.1 * label)
            tile = spectrum[:, None, None] * (1 + 0.3 * field) + rng.normal(0, 40, (13, size, size))
            tile[:, : 2 * (i % 3), :] = 0
            self.tiles.append(tile.clip(0, 10_000).astype(np.uint16))
            self.labels.append(label)

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, i):
        tile = torch.from_numpy(self.tiles[i].astype(np.float32) / 10_000)
        tile = (tile - MEAN) / STD
        return torch.rot90(tile, int(torch.randint(4, ())), (1, 2)), self.labels[i]


def make_loader():
    return DataLoader(Tiles(), batch_size=8, shuffle=True)
