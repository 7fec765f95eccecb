"""A folder of images of many sizes whose workers keep a few bytes with each sample, or none."""

from __future__ import annotations

import ctypes
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

FOLDER = Path(os.environ.get("DLCHECK_BENCH_DATA", "."))
KIND = os.environ.get("DLCHECK_BENCH_LEAK", "none")
SIZE = int(os.environ.get("DLCHECK_BENCH_BYTES", "0"))
USS = os.environ.get("DLCHECK_BENCH_USS")
SAMPLES, BATCH, SIDE = 300, 10, 64
MALLOC = ctypes.CDLL(None).malloc
MALLOC.restype = ctypes.c_void_p


def kept(index: int) -> Any:
    """Make what is kept, of SIZE bytes."""
    if KIND == "objects":
        return [float(index + n) for n in range(max((SIZE - 56) // 32, 1))]
    if KIND == "numpy":
        return np.full(SIZE, index % 256, np.uint8)
    if KIND == "torch":
        return torch.full((SIZE,), index % 256, dtype=torch.uint8)
    if KIND == "malloc":
        return MALLOC(ctypes.c_size_t(SIZE))
    return None


class Pages(Dataset):
    """Decode, scale at random, fit into a square; `notes` is what grows."""

    def __init__(self) -> None:
        import cv2

        cv2.setNumThreads(0)
        self.cv2 = cv2
        self.paths = sorted(map(str, FOLDER.glob("*.jpg")))
        self.notes: list[Any] = []
        self.drawn = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, int]:
        cv2 = self.cv2
        image = cv2.imread(self.paths[index % len(self.paths)])
        scale = random.uniform(0.3, 1.5)
        image = cv2.resize(image, None, fx=scale, fy=scale)
        image = cv2.resize(image, (SIDE, SIDE))
        if KIND == "malloc":
            kept(index)
        elif KIND != "none":
            self.notes.append(kept(index))
        self.drawn += 1
        if USS and self.drawn % (SAMPLES // 2) == 0:
            import psutil

            with Path(USS).open("a") as file:
                file.write(f"{os.getpid()} {psutil.Process().memory_full_info().uss}\n")
        return torch.from_numpy(image.astype(np.float32).transpose(2, 0, 1).copy()), index % 10


def make_pages() -> DataLoader:
    return DataLoader(
        Pages(), batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True
    )
