"""MixUp in a collate function, with the usual mistake in it."""

import torch
from torch.utils.data import default_collate


class MixUp:
    """Mix each image of a batch with another one of it."""

    def __init__(self, alpha=1.0):
        self.beta = torch.distributions.Beta(alpha, alpha)

    def __call__(self, samples):
        images, labels = default_collate(samples)
        share = self.beta.sample()
        other = torch.randperm(len(images))
        images = share * images + (1 - share) * images[other]
        return images, labels
