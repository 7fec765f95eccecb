"""Samples without an annotation come back without the key that the others have."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __init__(self, n=40):
        rng = np.random.default_rng(0)
        self.scans = rng.random((n, 1, 32, 32), dtype=np.float32)
        self.masks = {i: self.scans[i, 0] > 0.5 for i in range(n) if i % 5}

    def __len__(self):
        return len(self.scans)

    def __getitem__(self, i):
        image = torch.from_numpy(self.scans[i])
        if i not in self.masks:
            return {"image": image}  # expect: structure-varies
        return {"image": image, "mask": torch.from_numpy(self.masks[i]).long()}


def make_loader():
    return DataLoader(Scans(), batch_size=8, shuffle=True)
