"""The transform remembers the last image only."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Layers:
    def __init__(self, layers):
        self.layers = layers
        self.history = []

    def __call__(self, image):
        self.history.clear()
        for layer in self.layers:
            image = layer(image)
            self.history.append((layer.__name__, image))
        return image


class Pages(Dataset):
    def __init__(self, transform, n=96):
        self.pages = np.random.default_rng(0).random((n, 64, 48), dtype=np.float32)
        self.transform = transform

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, i):
        return torch.from_numpy(self.transform(self.pages[i]).copy()), i % 2


def mirror(page):
    return page[:, ::-1]


def invert(page):
    return 1 - page


def make_loader():
    return DataLoader(Pages(Layers([mirror, invert])), batch_size=8, shuffle=True)
