"""Crops are cached as uint8, which ToTensor brings to 0..1."""

import cv2
import numpy as np
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class CachedCrops(Dataset):
    def __init__(self, n=40):
        rng = np.random.default_rng(0)
        small = rng.integers(0, 256, (n, 6, 6, 3), dtype=np.uint8)
        self.crops = [cv2.resize(s, (48, 48)) for s in small]
        self.transform = transforms.Compose([
            transforms.ToTensor(),
            transforms.RandomHorizontalFlip(),
            transforms.Normalize(MEAN, STD),
        ])

    def __len__(self):
        return len(self.crops)

    def __getitem__(self, i):
        return self.transform(self.crops[i]), i % 3


def make_loader():
    return DataLoader(CachedCrops(), batch_size=8, shuffle=True)
