"""The last batch of one was to be ignored until drop_last came; it came, the ignore stayed."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

# As `rules:` in dlcheck.yaml.
rules = {"ignore": {"small-last-batch": {"reason": "fixed in 2.1", "until": "2024-06-30"}}}  # expect: stale-ignore


class Sensors(Dataset):
    def __init__(self, n=65):
        rng = np.random.default_rng(0)
        self.series = rng.standard_normal((n, 4, 50)).astype(np.float32)
        self.labels = rng.integers(0, 2, n)

    def __len__(self):
        return len(self.series)

    def __getitem__(self, i):
        return torch.from_numpy(self.series[i]), int(self.labels[i])


def make_loader():
    return DataLoader(Sensors(), batch_size=16, shuffle=True, drop_last=True)
