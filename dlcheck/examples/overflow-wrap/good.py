"""Noise is added in floats, clipped, and only then cast to uint8."""

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def add_noise(image, std=12.0):
    noise = np.random.normal(0, std, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


class Photos(Dataset):
    def __init__(self, n=40):
        rng = np.random.default_rng(0)
        small = rng.integers(0, 256, (n, 6, 6, 3), dtype=np.uint8)
        self.photos = [cv2.resize(s, (48, 48)) for s in small]

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, i):
        image = add_noise(self.photos[i])
        return torch.from_numpy(image).permute(2, 0, 1).float() / 255, i % 3


def make_loader():
    return DataLoader(Photos(), batch_size=8, shuffle=True)
