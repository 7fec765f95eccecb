"""Speech commands as raw waveforms of unequal length, padded in the collate; some are silence."""

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

RATE = 8000


class Commands(Dataset):
    def __init__(self, n=60):
        rng = np.random.default_rng(3)
        self.waves, self.words = [], []
        for i in range(n):
            t = np.arange(int(RATE * rng.uniform(0.4, 0.7))) / RATE
            wave = np.sin(2 * np.pi * (200 + 90 * (i % 4)) * t) * np.exp(-4 * t)
            # Digital silence is a class of its own.
            wave = np.zeros_like(t) if i % 10 == 9 else wave + rng.normal(0, 0.01, t.shape)
            self.waves.append(wave.astype(np.float32))
            self.words.append(4 if i % 10 == 9 else i % 4)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        return torch.from_numpy(self.waves[i]), RATE, self.words[i], f"speaker{i % 7}"


def collate(samples):
    waves, rates, words, speakers = zip(*samples)
    lengths = torch.tensor([len(wave) for wave in waves])
    return pad_sequence(waves, batch_first=True), lengths, torch.tensor(words), list(speakers)


def make_loader():
    return DataLoader(Commands(), batch_size=10, shuffle=True, collate_fn=collate)
