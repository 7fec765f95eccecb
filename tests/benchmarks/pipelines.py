"""What the benchmarks drive: a realistic folder of JPEGs, and synthetic samples."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

FOLDER = Path(os.environ.get("DLCHECK_BENCH_DATA", "."))


def draw(folder: Path, n: int = 64) -> None:
    """Write `n` JPEGs of the size of ImageNet's, with texture that takes its time to decode."""
    import cv2

    rng = np.random.default_rng(0)
    for number in range(n):
        coarse = rng.integers(0, 256, (25, 32, 3), dtype=np.uint8)
        image = cv2.resize(coarse, (500, 375), interpolation=cv2.INTER_CUBIC)
        noise = rng.integers(0, 24, image.shape, dtype=np.uint8)
        cv2.imwrite(str(folder / f"{number:03d}.jpg"), cv2.add(image, noise))


class Photos(Dataset):
    """Decode, crop at random to 224, flip, shift the colours, normalise."""

    def __init__(self, length: int) -> None:
        import cv2

        cv2.setNumThreads(0)
        self.cv2 = cv2
        self.paths = sorted(map(str, FOLDER.glob("*.jpg")))
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Any, int]:
        cv2 = self.cv2
        image = cv2.cvtColor(cv2.imread(self.paths[index % len(self.paths)]), cv2.COLOR_BGR2RGB)
        side = random.randint(200, 370)
        top = random.randint(0, image.shape[0] - side)
        left = random.randint(0, image.shape[1] - side)
        image = cv2.resize(image[top : top + side, left : left + side], (224, 224))
        if random.random() < 0.5:
            image = cv2.flip(image, 1)
        image = image.astype(np.float32) / 255
        image = np.clip(image * random.uniform(0.8, 1.2), 0, 1)
        image = (image - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
        return torch.from_numpy(image.astype(np.float32).transpose(2, 0, 1).copy()), index % 10


class Synthetic(Dataset):
    def __len__(self) -> int:
        return int(os.environ.get("DLCHECK_BENCH_SAMPLES", "200000"))

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return torch.full((8,), float(index)), index


def make_photos() -> DataLoader:
    length = int(os.environ["DLCHECK_BENCH_SAMPLES"])
    workers = int(os.environ["DLCHECK_BENCH_WORKERS"])
    return DataLoader(Photos(length), batch_size=32, num_workers=workers)


def make_synthetic() -> DataLoader:
    return DataLoader(Synthetic(), batch_size=64)
