"""Features come from a frozen network inside the dataset; nobody told autograd that it is frozen."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Embedded(Dataset):
    """Clips of one second at 800 Hz, each turned into 16 features."""

    def __init__(self, n=48):
        generator = torch.Generator().manual_seed(0)
        self.clips = torch.randn(n, 1, 800, generator=generator)
        self.encoder = nn.Sequential(nn.Conv1d(1, 16, 40, 20), nn.ReLU(), nn.AdaptiveAvgPool1d(1))

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        return self.encoder(self.clips[i]).flatten(), i % 3  # expect: autograd-in-worker


def make_loader():
    return DataLoader(Embedded(), batch_size=8, shuffle=True, num_workers=1)
