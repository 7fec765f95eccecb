"""CT slices as 16-bit Hounsfield units, windowed to 0..1, with a mask of organs."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

WINDOW = (-160.0, 240.0)


class Slices(Dataset):
    def __init__(self, n=60, size=96):
        rng = np.random.default_rng(1)
        rows, columns = np.mgrid[:size, :size]
        self.slices, self.masks = [], []
        for i in range(n):
            y, x, r = rng.uniform(35, 60), rng.uniform(35, 60), rng.uniform(10, 24)
            body = (rows - 48) ** 2 + (columns - 48) ** 2 < 44**2
            organ = (rows - y) ** 2 + (columns - x) ** 2 < r**2
            # Every sixth slice lies above the organ.
            organ &= i % 6 != 0
            hounsfield = np.where(body, 40, -1000) + 60 * organ + rng.normal(0, 12, body.shape)
            self.slices.append(hounsfield.astype(np.int16))
            self.masks.append(organ.astype(np.uint8))

    def __len__(self):
        return len(self.slices)

    def __getitem__(self, i):
        low, high = WINDOW
        image = (self.slices[i].astype(np.float32) - low) / (high - low)
        image = torch.from_numpy(image.clip(0, 1))[None]
        mask = torch.from_numpy(self.masks[i].astype(np.int64))
        if torch.rand(()) < 0.5:
            image, mask = image.flip(-1), mask.flip(-1)
        return {"image": image, "mask": mask}


def make_loader():
    return DataLoader(Slices(), batch_size=6, shuffle=True)
