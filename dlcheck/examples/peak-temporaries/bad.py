"""Labels are smoothed over a batch of one-hot volumes, in double precision."""

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
    masks = default_collate(items)
    volume = torch.nn.functional.one_hot(masks, CLASSES).permute(0, 3, 1, 2).double()  # expect: peak-temporaries
    return torch.nn.functional.avg_pool2d(volume, 3, stride=1, padding=1).argmax(1)


def make_loader():
    return DataLoader(Scenes(), batch_size=12, shuffle=True, collate_fn=smooth)
