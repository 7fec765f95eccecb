"""Photos with a mask: both are cropped by one window."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SIZE = 64


class Cells(Dataset):
    def __init__(self, n=40, height=80, width=96):
        rng = np.random.default_rng(0)
        rows, columns = np.mgrid[0:height, 0:width]
        self.photos, self.masks = [], []
        for _ in range(n):
            y, x = rng.integers(20, 60, 2)
            cell = np.hypot(rows - y, columns - x) < 14
            planes = [rows * 2, columns * 2, 150 - rows]
            photo = np.stack([np.where(cell, 220, plane) for plane in planes], axis=2)
            self.photos.append(photo.astype(np.uint8))
            self.masks.append(cell.astype(np.int64))

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, i):
        photo, mask = self.photos[i], self.masks[i]
        top, left = torch.randint(16, (1,)).item(), torch.randint(32, (1,)).item()
        photo = photo[top : top + SIZE, left : left + SIZE]
        mask = mask[top : top + SIZE, left : left + SIZE]
        image = torch.from_numpy(photo).permute(2, 0, 1).float() / 255
        return {"image": image, "mask": torch.from_numpy(mask)}


def make_loader():
    return DataLoader(Cells(), batch_size=8, shuffle=True)
