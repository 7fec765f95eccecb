"""Pairs for a contrastive loss: the same picture comes again and again, in other company."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class SignaturePairs(Dataset):
    def __init__(self, people=8, each=4, n=90, size=40):
        rng = np.random.default_rng(15)
        rows, columns = np.mgrid[:size, :size]
        self.pictures = []
        for person in range(people):
            for _ in range(each):
                wave = np.sin(columns / (3 + person / 2) + rng.uniform(0, 0.5)) * np.cos(rows / 9)
                self.pictures.append(((wave > 0.6) * 255).astype(np.uint8))
        self.pairs = rng.integers(0, people * each, (n, 2))
        self.each = each

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        a, b = self.pairs[i]
        left, right = (torch.from_numpy(self.pictures[k])[None].float() / 255 for k in (a, b))
        return (left, right), torch.tensor(float(a // self.each == b // self.each))


def make_loader():
    return DataLoader(SignaturePairs(), batch_size=10, shuffle=True)
