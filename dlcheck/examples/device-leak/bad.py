"""Every prediction of the run stays on the device, for a plot at the end."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
predictions = []


def step(batch):
    images, heat = (part.to(device, non_blocking=True) for part in batch)
    optimizer.zero_grad()
    output = model(images)
    loss = nn.functional.mse_loss(output, heat)
    loss.backward()
    optimizer.step()
    predictions.append(output.detach().clone())  # expect: device-leak
    return loss.item()


def make_loader():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(64, 3, 96, 96, generator=generator)
    heat = images.mean(1, keepdim=True)
    return DataLoader(TensorDataset(images, heat), batch_size=8, shuffle=True)
