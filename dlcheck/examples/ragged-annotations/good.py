"""The collate function keeps the targets as a list, one of its own length for each image."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Street(Dataset):
    def __init__(self, n=32):
        rng = np.random.default_rng(0)
        self.images = rng.random((n, 3, 48, 48), dtype=np.float32)
        corners = [rng.uniform(0, 24, (1 + i % 4, 2)) for i in range(n)]
        self.boxes = [np.hstack([c, c + 16]).astype(np.float32) for c in corners]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        boxes = torch.from_numpy(self.boxes[i])
        target = {"boxes": boxes, "labels": torch.arange(len(boxes)) % 3}
        return torch.from_numpy(self.images[i]), target


def collate(batch):
    images, targets = zip(*batch)
    return torch.stack(images), list(targets)


def make_loader():
    return DataLoader(Street(), batch_size=8, shuffle=True, collate_fn=collate)
