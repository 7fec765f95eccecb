"""Captions in one array of bytes, which workers read and never write."""

import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, n=192, words=240_000):
        chance = random.Random(0)
        words = [f"{k:x}" + "e" * chance.randrange(40, 60) for k in range(words)]
        self.words = np.array(words, dtype="S")
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        chance = random.Random(torch.randint(1 << 30, ()).item())
        places = [chance.randrange(240_000) for _ in range(400)]
        return torch.tensor([len(self.words[k]) for k in places]), i % 2


def make_loader():
    return DataLoader(
        Captions(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True
    )
