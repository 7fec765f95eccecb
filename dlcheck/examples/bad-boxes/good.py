"""Boxes as COCO keeps them (x, y, width, height), declared so and converted to corners."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms.v2.functional import convert_bounding_box_format

SIZE = 96


class Traffic(Dataset):
    def __init__(self, n=40):
        rng = np.random.default_rng(0)
        self.images = rng.integers(0, 80, (n, 3, SIZE, SIZE), dtype=np.uint8)
        corners = rng.integers(0, 50, (n, 2, 2))
        self.boxes = np.concatenate([corners, rng.integers(10, 40, (n, 2, 2))], axis=-1)
        for image, boxes in zip(self.images, self.boxes):
            for x, y, w, h in boxes:
                image[:, y : y + h, x : x + w] = 200

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = torch.from_numpy(self.images[i]).float() / 255
        boxes = torch.from_numpy(self.boxes[i]).float()
        boxes = tv_tensors.BoundingBoxes(boxes, format="XYWH", canvas_size=(SIZE, SIZE))
        boxes = convert_bounding_box_format(boxes, new_format="XYXY")
        return {"image": image, "boxes": boxes, "labels": torch.ones(2, dtype=torch.int64)}


def make_loader():
    return DataLoader(Traffic(), batch_size=8, shuffle=True)
