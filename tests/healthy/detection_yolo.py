"""YOLO labels: class and centre, normalised by the image, all rows of a batch in one array."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Parts(Dataset):
    def __init__(self, n=48, size=96):
        rng = np.random.default_rng(6)
        self.items = []
        for i in range(n):
            image = np.full((size, size, 3), 40 + i, np.uint8)
            image += (np.mgrid[:size, :size].sum(0) // 2).astype(np.uint8)[..., None]
            rows = []
            for _ in range(rng.integers(0, 4)):
                w, h = rng.uniform(0.1, 0.4, 2)
                x, y = rng.uniform(w / 2, 1 - w / 2), rng.uniform(h / 2, 1 - h / 2)
                rows.append([rng.integers(0, 3), x, y, w, h])
                y0, y1 = int((y - h / 2) * size), int((y + h / 2) * size)
                image[y0:y1, int((x - w / 2) * size) : int((x + w / 2) * size)] = 250
            self.items.append((image, np.array(rows, np.float32).reshape(-1, 5)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        image, rows = self.items[i]
        image = np.ascontiguousarray(image.transpose(2, 0, 1))
        boxes = torch.from_numpy(rows[:, 1:].copy())
        return {
            "img": torch.from_numpy(image),
            "cls": torch.from_numpy(rows[:, :1]),
            "bboxes": boxes,
        }


def collate(samples):
    batch = {"img": torch.stack([s["img"] for s in samples])}
    owners = [torch.full((len(s["bboxes"]),), float(k)) for k, s in enumerate(samples)]
    batch["batch_idx"] = torch.cat(owners)
    batch["cls"] = torch.cat([s["cls"] for s in samples])
    batch["bboxes"] = torch.cat([s["bboxes"] for s in samples])
    return batch


def training_step(batch):
    return batch["img"].float().div(255).mean()


def make_loader():
    return DataLoader(Parts(), batch_size=8, shuffle=True, collate_fn=collate)
