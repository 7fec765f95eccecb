"""Point clouds (3, N) for PointNet, with a part label for each point."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __init__(self, n=60, points=256):
        rng = np.random.default_rng(8)
        self.clouds, self.parts = [], []
        for i in range(n):
            direction = rng.normal(size=(points, 3))
            cloud = direction / np.linalg.norm(direction, axis=1, keepdims=True)
            cloud *= [1, 1 + 0.3 * (i % 3), 1]
            self.clouds.append(cloud.astype(np.float32))
            self.parts.append((cloud[:, 1] > 0).astype(np.int64))

    def __len__(self):
        return len(self.clouds)

    def __getitem__(self, i):
        chosen = np.random.choice(256, 128, replace=False)
        cloud = self.clouds[i][chosen]
        cloud = cloud + np.random.normal(0, 0.01, cloud.shape).astype(np.float32)
        return (
            torch.from_numpy(cloud).T,
            torch.tensor(i % 3),
            torch.from_numpy(self.parts[i][chosen]),
        )


def make_loader():
    return DataLoader(Shapes(), batch_size=10, shuffle=True)
