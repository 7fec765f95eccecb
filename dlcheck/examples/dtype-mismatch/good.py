"""Labels kept as int32 and cast where they become tensors."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, n=60):
        rng = np.random.default_rng(0)
        self.labels = (np.arange(n) % 3).astype(np.int32)
        rows, columns = np.mgrid[:28, :28]
        waves = rows * 0.3 + columns * (0.1 + 0.2 * self.labels[:, None, None])
        noise = rng.normal(0, 0.1, (n, 28, 28))
        self.images = (0.5 + 0.4 * np.sin(waves) + noise).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = torch.from_numpy(self.images[i])[None]
        label = torch.tensor(self.labels[i], dtype=torch.int64)
        return image, label


def make_loader():
    return DataLoader(Digits(), batch_size=10, shuffle=True)
