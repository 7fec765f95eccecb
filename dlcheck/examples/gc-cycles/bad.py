"""The error of a bad header is kept in a local: error, traceback, frame and local make a ring."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def parse(ping, strict=True):
    if strict and ping[0] < 0.5:
        raise ValueError("bad header")
    return ping[1:].reshape(64, -1)


class Sonar(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, i):
        ping = np.random.default_rng(i).random(64 * 1024 + 1)
        problem = None
        try:
            image = parse(ping)
        except ValueError as error:
            problem = error  # expect: gc-cycles
            image = parse(ping, strict=False)
        return torch.from_numpy(image[:, :16].copy()), int(problem is None)


def make_loader():
    return DataLoader(Sonar(), batch_size=6, shuffle=True)
