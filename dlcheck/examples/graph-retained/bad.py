"""The running loss is summed as a tensor, and brings the graph of every step along."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.loss_sum = 0.0

    def step(self, batch):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.loss_sum += loss  # expect: graph-retained


trainer = Trainer()


def step(batch):
    trainer.step(batch)


def make_loader():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(96, 16, generator=generator)
    return DataLoader(TensorDataset(x, torch.arange(96) % 3), batch_size=8, shuffle=True)
