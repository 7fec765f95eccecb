"""Each volume is opened to read its header, and stays open for a later that never comes."""

from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    def __init__(self, path, n=96):
        self.path = path
        self.n = n
        self.opened = []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        volume = self.path.open("rb")  # expect: fd-leak
        self.opened.append(volume)
        header = torch.frombuffer(bytearray(volume.read(64)), dtype=torch.uint8)
        return header / 255, i % 3


def make_loader():
    return DataLoader(Volumes(Path(__file__)), batch_size=8, shuffle=True)
