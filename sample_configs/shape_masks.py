"""Scenes of shapes with a mask of classes: a small segmentation dataset."""

import cv2
import numpy as np
import torch
from shape_folder import CLASSES, draw_shape, drawn, mat
from torch.utils.data import Dataset

SIZE = (64, 64)


def draw_masks(folder, scenes=32):
    rng = np.random.default_rng(2)
    for number in range(scenes):
        image, mask = mat(96, 96), np.zeros((96, 96), np.uint8)
        for label, kind in enumerate(CLASSES, start=1):
            centre = tuple(int(value) for value in rng.integers(20, 76, size=2))
            radius = int(rng.integers(12, 20))
            colour = tuple(int(value) for value in rng.integers(40, 216, size=3))
            draw_shape(image, kind, centre, radius, colour)
            draw_shape(mask, kind, centre, radius, label)
        cv2.imwrite(str(folder / f"{number:03d}.png"), image)
        cv2.imwrite(str(folder / f"{number:03d}_mask.png"), mask)


class ShapeMasks(Dataset):
    """Return an image and its mask of classes, both at one size."""

    def __init__(self):
        self.paths = sorted(drawn("masks", draw_masks).glob("*_mask.png"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        image = cv2.imread(str(path).replace("_mask", ""))
        image = cv2.cvtColor(cv2.resize(image, SIZE), cv2.COLOR_BGR2RGB)
        mask = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        mask = cv2.resize(mask, SIZE)
        return {
            "image": torch.from_numpy(image).permute(2, 0, 1).float() / 255,
            "mask": torch.from_numpy(mask).long(),
        }
