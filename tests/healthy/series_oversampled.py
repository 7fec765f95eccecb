"""Time series (T, C), the rare class repeated in the index until it is as frequent as the other."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Beats(Dataset):
    def __init__(self, n=70, length=180, leads=2):
        rng = np.random.default_rng(17)
        t = np.arange(length)[:, None]
        labels = (np.arange(n) % 10 == 0).astype(int)
        peaks = np.exp(-((t - 90 - 20 * labels[:, None, None]) ** 2) / 60)
        self.beats = (peaks * [1.0, 0.6] + rng.normal(0, 0.02, (n, length, leads))).astype("f4")
        rare = np.flatnonzero(labels)
        self.index = np.concatenate([np.arange(n), np.repeat(rare, 8)])
        self.labels = labels

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        k = self.index[i]
        return torch.from_numpy(self.beats[k]), int(self.labels[k])


def make_loader():
    return DataLoader(Beats(), batch_size=16, shuffle=True)
