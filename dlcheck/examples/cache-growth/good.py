"""The last images decoded are kept, and no more of them than fit."""

import functools

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


@functools.lru_cache(maxsize=16)
def decode(index):
    return np.random.default_rng(index).random((3, 64, 64), dtype=np.float32)


class Photos(Dataset):
    def __init__(self, n=160):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.from_numpy(decode(i).copy()), i % 4


def make_loader():
    return DataLoader(
        Photos(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True
    )
