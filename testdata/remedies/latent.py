# SPDX-License-Identifier: Apache-2.0
"""Trains an autoencoder with a distribution in the middle, on pictures, and keeps the last reconstruction."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Down(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(before, after, 4, 2, 1), nn.BatchNorm2d(after)

    def forward(self, x):
        return F.elu(self.norm(self.conv(x)))


class Up(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.conv, self.norm, self.mix = nn.ConvTranspose2d(before, after, 4, 2, 1), nn.BatchNorm2d(after), nn.Conv2d(after, after, 3, padding=1)

    def forward(self, x):
        x = F.elu(self.norm(self.conv(x)))
        return x + torch.tanh(self.mix(x))


class Auto(nn.Module):
    def __init__(self, r, sizes=(3, 32, 64, 128), middle=64):
        super().__init__()
        self.r = r
        self.downs = nn.ModuleList(Down(a, b) for a, b in zip(sizes, sizes[1:]))
        back = sizes[:0:-1] + (16,)
        self.ups = nn.ModuleList(Up(a, b) for a, b in zip(back, back[1:]))
        self.mean, self.spread, self.enter = nn.Linear(128 * 64, middle), nn.Linear(128 * 64, middle), nn.Linear(middle, 128 * 64)
        self.last = nn.Conv2d(16, 3, 1)

    def forward(self, x):
        for down in self.downs:
            x = down(x)
        flat = x.flatten(1)
        mean, spread = self.mean(flat), self.spread(flat)
        z = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        x = self.enter(z).view(-1, 128, 8, 8)
        for up in self.ups:
            x = self.r.call(up, x)
        return torch.sigmoid(self.last(x)), mean, spread


def job(r):
    model = r.model(Auto(r))
    optimizer = r.adam(model.parameters())
    for _ in range(5):
        x = r.input(r.batch(40), 3, 64, 64)
        again, mean, spread = model(x)
        loss = F.binary_cross_entropy(again, torch.zeros_like(x), reduction="sum") / len(x) - 0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


remedy.run(job)
