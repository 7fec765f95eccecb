"""Several findings a picture as a float vector, many with none; labels of -1 mean uncertain."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Chest(Dataset):
    def __init__(self, n=60, size=64, findings=8):
        rng = np.random.default_rng(14)
        rows, columns = np.mgrid[:size, :size]
        self.findings = (rng.random((n, findings)) < 0.12).astype(np.float32)
        self.findings[rng.random((n, findings)) < 0.05] = -1
        phases = rng.uniform(0, 6, n)[:, None, None]
        shade = 120 + 80 * np.sin(rows / 20 + phases) * np.cos(columns / 15)
        self.images = (shade + rng.normal(0, 4, (n, size, size))).clip(0, 255).astype(np.uint8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = torch.from_numpy(self.images[i]).float()[None] / 255
        image = (image - 0.5) / 0.25
        return {"img": image, "lab": torch.from_numpy(self.findings[i]), "idx": i}


def make_loader():
    return DataLoader(Chest(), batch_size=10, shuffle=True)
