"""Rows of a table: numbers, category codes, a rare positive label; many rows are equal."""

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


def make_loader():
    rng = np.random.default_rng(9)
    numbers = rng.normal(size=(400, 12)).round(1).astype(np.float32)
    numbers[200:260] = numbers[:60]
    codes = rng.integers(0, [5, 90, 1000], (400, 3))
    positive = (rng.random(400) < 0.03).astype(np.float32)
    arrays = [torch.from_numpy(a) for a in (numbers, codes, positive)]
    return DataLoader(TensorDataset(*arrays), batch_size=32, shuffle=True)
