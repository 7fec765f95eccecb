"""Video clips (C, T, H, W) cut at random from longer films, as 3-D convolutions want them."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Films(Dataset):
    def __init__(self, n=36, frames=24, size=48, clip=8):
        rng = np.random.default_rng(7)
        t, rows, columns = np.mgrid[:frames, :size, :size]
        self.clip = clip
        self.films = []
        for i in range(n):
            speed = (i % 3 - 1) * 2.0
            x = (columns - speed * t - rng.uniform(0, size)) / 7
            frame = 127 + 90 * np.sin(x) * np.cos(rows / 9 + rng.uniform(0, 6))
            film = np.stack([frame, frame * 0.8, 255 - frame], axis=-1)
            self.films.append(film.clip(0, 255).astype(np.uint8))

    def __len__(self):
        return len(self.films)

    def __getitem__(self, i):
        film = self.films[i]
        start = int(torch.randint(len(film) - self.clip + 1, ()))
        clip = torch.from_numpy(film[start : start + self.clip]).permute(3, 0, 1, 2)
        clip = (clip.float() / 255 - 0.45) / 0.225
        return clip, i % 3


def make_loader():
    return DataLoader(Films(), batch_size=4, shuffle=True)
