"""The collate function unpacks three items from samples that have two."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, n=64):
        rng = np.random.default_rng(0)
        self.images = rng.random((n, 1, 28, 28), dtype=np.float32)
        self.labels = rng.integers(0, 10, n)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]), int(self.labels[i])


def collate(batch):
    images, labels, paths = zip(*batch)  # expect: pipeline-error
    return torch.stack(images), torch.tensor(labels), paths


def make_loader():
    return DataLoader(Digits(), batch_size=16, shuffle=True, collate_fn=collate)
