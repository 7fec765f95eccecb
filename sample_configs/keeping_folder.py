"""Folders whose datasets keep what they should hand on: pictures, open files, a million dicts."""

import random

import cv2
import torch
from shape_folder import CLASSES, ShapeFolder
from torch.utils.data import Dataset


class CachedFolder(ShapeFolder):
    """Decode each picture once in every worker, and keep it there."""

    def __init__(self, transform=None):
        super().__init__(transform=transform)
        self.cache = {}

    def __getitem__(self, index):
        path = self.paths[index]
        if index not in self.cache:
            image = cv2.imread(str(path))
            self.cache[index] = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        return self.transform(self.cache[index]), CLASSES.index(path.parent.name)


class SignedFolder(ShapeFolder):
    """Check the signature of each file before it is decoded."""

    def __init__(self, transform=None):
        super().__init__(transform=transform)
        self.checked = []

    def __getitem__(self, index):
        file = self.paths[index].open("rb")
        if file.read(4)[1:] != b"PNG":
            raise ValueError(f"{file.name} is no picture")
        self.checked.append(file)
        return super().__getitem__(index)


class Sightings(Dataset):
    """Return (position, species): each record a dict of a list in memory."""

    def __init__(self, records, per_sample=64):
        chance = random.Random(0)
        self.records = [
            {"x": chance.random(), "y": chance.random(), "species": chance.randrange(300)}
            for _ in range(records)
        ]
        self.per_sample = per_sample

    def __len__(self):
        return len(self.records) // self.per_sample

    def __getitem__(self, index):
        drawn = random.Random(index).sample(range(len(self.records)), self.per_sample)
        group = [self.records[place] for place in drawn]
        positions = torch.tensor([[record["x"], record["y"]] for record in group])
        return positions, group[0]["species"]
