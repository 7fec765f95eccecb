"""The table calls its training rows "train"; the dataset asks for "training" and gets none."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def read_table(n=80):
    rng = np.random.default_rng(0)
    splits = ["val" if i % 5 == 0 else "train" for i in range(n)]
    return [(split, rng.random(12, dtype=np.float32), i % 3) for i, split in enumerate(splits)]


class Flowers(Dataset):
    def __init__(self, split):
        self.rows = [row for row in read_table() if row[0] == split]  # expect: nothing-to-check

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        _, features, label = self.rows[i]
        return torch.from_numpy(features), label


def make_loader():
    return DataLoader(Flowers("training"), batch_size=16, shuffle=True)
