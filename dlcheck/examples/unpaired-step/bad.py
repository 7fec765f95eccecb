"""zero_grad is never called: each step uses the gradients of all batches before it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)


def step(batch):
    x, y = batch
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()  # expect: unpaired-step
    return loss.item()


def make_loader():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(96, 16, generator=generator)
    return DataLoader(TensorDataset(x, torch.arange(96) % 3), batch_size=8, shuffle=True)
