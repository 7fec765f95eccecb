"""Gradients of two batches are added on purpose; after each step they are cleared."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
batches = 0


def step(batch):
    global batches
    x, y = batch
    loss = nn.functional.cross_entropy(net(x), y) / 2
    loss.backward()
    batches += 1
    if batches % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def make_loader():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(96, 16, generator=generator)
    return DataLoader(TensorDataset(x, torch.arange(96) % 3), batch_size=8, shuffle=True)
