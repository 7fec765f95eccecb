"""Two frames and the flow between them in pixels, with a validity mask."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __init__(self, n=40, size=64):
        rng = np.random.default_rng(12)
        self.shifts = rng.uniform(-6, 6, (n, 2))
        self.phases = rng.uniform(0, 6, n)
        self.size = size

    def __len__(self):
        return len(self.shifts)

    def frame(self, dx, dy, phase):
        rows, columns = np.mgrid[: self.size, : self.size]
        wave = 127 + 100 * np.sin((columns - dx) / 6 + phase) * np.cos((rows - dy) / 8)
        return torch.from_numpy(np.stack([wave, 255 - wave, wave * 0.5]).astype(np.uint8))

    def __getitem__(self, i):
        dx, dy = self.shifts[i]
        first, second = self.frame(0, 0, self.phases[i]), self.frame(dx, dy, self.phases[i])
        flow = torch.tensor([dx, dy], dtype=torch.float32)[:, None, None]
        flow = flow.repeat(1, self.size, self.size)
        valid = torch.ones(self.size, self.size)
        return first.float() / 127.5 - 1, second.float() / 127.5 - 1, flow, valid


def make_loader():
    return DataLoader(Pairs(), batch_size=8, shuffle=True)
