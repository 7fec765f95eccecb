"""Spectra scaled to unit peak: one recording is silent, so its peak is 0."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    def __init__(self, n=48, bins=512):
        rng = np.random.default_rng(0)
        peaks = np.exp(-((np.arange(bins) - rng.uniform(50, 450, (n, 1))) ** 2) / 800)
        self.spectra = (peaks + rng.uniform(0, 0.05, (n, bins))).astype(np.float32)
        self.spectra[31] = 0

    def __len__(self):
        return len(self.spectra)

    def __getitem__(self, i):
        spectrum = self.spectra[i]
        spectrum = spectrum / spectrum.max()  # expect: non-finite
        return torch.from_numpy(spectrum), i % 3


def make_loader():
    return DataLoader(Spectra(), batch_size=8, shuffle=True)
