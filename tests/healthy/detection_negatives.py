"""Detection with images that hold no object, and boxes flipped with the image."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Street(Dataset):
    def __init__(self, n=60, height=80, width=112):
        rng = np.random.default_rng(5)
        rows, columns = np.mgrid[:height, :width]
        self.items = []
        for i in range(n):
            ground = (90 + 60 * np.sin(rows / 19 + i) + 30 * np.cos(columns / 23)).astype(np.uint8)
            image = np.stack([ground, ground // 2 + 40, 255 - ground], axis=-1)
            boxes, labels = [], []
            for _ in range(0 if i % 4 == 0 else rng.integers(1, 4)):
                w, h = rng.integers(8, 40), rng.integers(8, 30)
                x, y = rng.integers(0, width - w), rng.integers(0, height - h)
                image[y : y + h, x : x + w] = (200, 30, 30)
                boxes.append([x, y, x + w, y + h])
                labels.append(rng.integers(1, 4))
            self.items.append((image, boxes, labels))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        image, boxes, labels = self.items[i]
        image = torch.from_numpy(image).permute(2, 0, 1).float() / 255
        boxes = torch.as_tensor(np.array(boxes, np.float32).reshape(-1, 4))
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
            boxes = boxes.clone()
            boxes[:, [0, 2]] = image.shape[2] - boxes[:, [2, 0]]
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        target = {
            "boxes": boxes,
            "labels": torch.as_tensor(np.array(labels, np.int64)),
            "area": area,
            "iscrowd": torch.zeros(len(boxes), dtype=torch.int64),
            "image_id": i,
        }
        return image, target


def collate(samples):
    return tuple(zip(*samples))


def make_loader():
    return DataLoader(Street(), batch_size=4, shuffle=True, collate_fn=collate)
