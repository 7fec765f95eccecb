"""A copy of the first row is kept for calibration, of the last records only."""

from collections import deque

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def read(index):
    return np.random.default_rng(index).standard_normal((64, 512)).astype(np.float32)


class Records(Dataset):
    def __init__(self, n=96):
        self.n = n
        self.first_rows = deque(maxlen=16)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        record = read(i)
        self.first_rows.append(record[0].copy())
        return torch.from_numpy(record[1:33] - np.mean(self.first_rows[-1]))


def make_loader():
    return DataLoader(Records(), batch_size=8, shuffle=True)
