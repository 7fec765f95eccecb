"""Files that cannot be decoded are to be skipped, so the dataset returns None for them."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SHAPE = (3, 32, 32)


def write_files(n=40):
    rng = np.random.default_rng(0)
    files = [rng.random(SHAPE, dtype=np.float32).tobytes() for _ in range(n)]
    files[17] = files[17][:100]
    return files


def decode(data):
    if len(data) != 4 * np.prod(SHAPE):
        return None
    return np.frombuffer(data, dtype=np.float32).reshape(SHAPE).copy()


class Tiles(Dataset):
    def __init__(self):
        self.files = write_files()

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        tile = decode(self.files[i])
        if tile is None:
            return None  # expect: uncollatable-type
        return torch.from_numpy(tile), i % 2


def make_loader():
    return DataLoader(Tiles(), batch_size=8, shuffle=True, num_workers=2)
