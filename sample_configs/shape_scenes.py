"""Scenes of one to four shapes, with a box around each: a small detection dataset."""

import json

import cv2
import numpy as np
import torch
from shape_folder import CLASSES, draw_shape, drawn, mat
from torch.utils.data import Dataset

HEIGHT, WIDTH = 96, 128


def draw_scenes(folder, scenes=32):
    rng = np.random.default_rng(1)
    for number in range(scenes):
        image = mat(HEIGHT, WIDTH)
        shapes = []
        for _ in range(1 + number % 4):
            label = int(rng.integers(len(CLASSES)))
            radius = int(rng.integers(8, 17))
            x = int(rng.integers(radius, WIDTH - radius))
            y = int(rng.integers(radius, HEIGHT - radius))
            colour = tuple(int(value) for value in rng.integers(40, 216, size=3))
            draw_shape(image, CLASSES[label], (x, y), radius, colour)
            box = [x - radius, y - radius, x + radius, y + radius]
            shapes.append({"box": box, "label": label})
        cv2.imwrite(str(folder / f"{number:03d}.png"), image)
        (folder / f"{number:03d}.json").write_text(json.dumps(shapes))


class ShapeScenes(Dataset):
    """Return (image, target) as torchvision's detection models take them, boxes as x1,y1,x2,y2."""

    def __init__(self):
        self.paths = sorted(drawn("scenes", draw_scenes).glob("*.png"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
        shapes = json.loads(path.with_suffix(".json").read_text())
        target = {
            "boxes": torch.tensor([shape["box"] for shape in shapes], dtype=torch.float32),
            "labels": torch.tensor([shape["label"] for shape in shapes]),
        }
        return torch.from_numpy(image).permute(2, 0, 1).float() / 255, target
