"""Each worker keeps every image that it decodes, and in the end holds the whole dataset."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def decode(index):
    return np.random.default_rng(index).random((3, 64, 64), dtype=np.float32)


class Photos(Dataset):
    def __init__(self, n=160):
        self.n = n
        self.cache = {}

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i not in self.cache:
            self.cache[i] = decode(i)  # expect: cache-growth
        return torch.from_numpy(self.cache[i].copy()), i % 4


def make_loader():
    return DataLoader(
        Photos(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True
    )
