"""Text lines for CTC: grey images of one height, texts as index rows with lengths, 0 the blank."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

ALPHABET = "abcdefghij"
HEIGHT, GLYPH = 32, 12


class Lines(Dataset):
    def __init__(self, n=60):
        rng = np.random.default_rng(4)
        glyphs = rng.random((len(ALPHABET), HEIGHT // 4, GLYPH // 4)) > 0.5
        self.glyphs = np.kron(glyphs, np.ones((1, 4, 4)))
        self.texts = ["".join(rng.choice(list(ALPHABET), rng.integers(2, 9))) for _ in range(n)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        text = self.texts[i]
        line = np.concatenate([self.glyphs[ALPHABET.index(c)] for c in text], axis=1)
        image = torch.from_numpy(1 - line.astype(np.float32))[None]
        return image, torch.tensor([1 + ALPHABET.index(c) for c in text]), text


def collate(samples):
    images, targets, texts = zip(*samples)
    width = max(image.shape[2] for image in images)
    batch = torch.ones(len(images), 1, HEIGHT, width)
    for row, image in zip(batch, images):
        row[:, :, : image.shape[2]] = image
    lengths = torch.tensor([len(target) for target in targets])
    return batch, torch.cat(targets), lengths, texts


def make_loader():
    return DataLoader(Lines(), batch_size=6, shuffle=True, collate_fn=collate)
