"""Causal language model: token rows padded on the right, labels -100 where there is no loss."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PAD, LENGTH = 0, 64


class Documents(Dataset):
    def __init__(self, n=80, vocabulary=900):
        rng = np.random.default_rng(10)
        steps = rng.integers(1, 40, (n, LENGTH))
        self.rows = 3 + steps.cumsum(1) % (vocabulary - 3)
        self.lengths = rng.integers(8, LENGTH + 1, n)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids = torch.full((LENGTH,), PAD)
        ids[: self.lengths[i]] = torch.from_numpy(self.rows[i][: self.lengths[i]])
        mask = (torch.arange(LENGTH) < int(self.lengths[i])).long()
        labels = ids.masked_fill(mask == 0, -100)
        labels[:4] = -100
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def make_loader():
    return DataLoader(Documents(), batch_size=8, shuffle=True)
