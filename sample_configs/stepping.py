"""Training steps, each with one line too many, too few or wrong."""

import torch
from torch import nn


class Trainer:
    """A small classifier of 32x32 pictures with its optimizer and a running loss."""

    def __init__(self, channels=3):
        self.net = nn.Sequential(
            nn.Conv2d(channels, 8, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(128, 3),
        )
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.loss_sum = 0.0

    def loss(self, batch):
        """Classify a batch of (image, label)."""
        image, label = batch
        return nn.functional.cross_entropy(self.net(image), label)


summing, computing, reading = Trainer(), Trainer(), Trainer(channels=1)


def summed_loss(batch):
    """Train, and sum the loss with its history."""
    loss = summing.loss(batch)
    summing.optimizer.zero_grad()
    loss.backward()
    summing.optimizer.step()
    summing.loss_sum += loss


def backward_alone(batch):
    """Compute gradients, and stop there."""
    computing.optimizer.zero_grad()
    loss = computing.loss(batch)
    loss.backward()
    return loss.item()


def grey_model(batch):
    """Train a model of grey pictures."""
    reading.optimizer.zero_grad()
    loss = reading.loss(batch)
    loss.backward()
    reading.optimizer.step()
