"""Labels are smoothed mask by mask, to the commonest label around each pixel."""

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

CLASSES = 120


class Scenes(Dataset):
    def __init__(self, n=48):
        chance = torch.Generator().manual_seed(0)
        self.masks = torch.randint(0, CLASSES, (n, 64, 64), generator=chance)

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, i):
        return self.masks[i]


def smooth(items):
    return default_collate([smoothed(mask) for mask in items])


def smoothed(mask):
    around = torch.nn.functional.pad(mask[None], (1, 1, 1, 1), mode="replicate")[0]
    windows = [around[y : y + 64, x : x + 64] for y in range(3) for x in range(3)]
    return torch.stack(windows).mode(0).values


def make_loader():
    return DataLoader(Scenes(), batch_size=12, shuffle=True, collate_fn=smooth)
