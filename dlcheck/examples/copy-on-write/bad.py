"""Captions as a list of Python strings: reading one writes its reference count, and its page."""

import random

import torch
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, n=192, words=240_000):
        chance = random.Random(0)
        self.words = [f"{k:x}" + "e" * chance.randrange(40, 60) for k in range(words)]
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        chance = random.Random(torch.randint(1 << 30, ()).item())
        places = [chance.randrange(240_000) for _ in range(400)]
        return torch.tensor([len(self.words[k]) for k in places]), i % 2  # expect: copy-on-write


def make_loader():
    return DataLoader(
        Captions(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True
    )
