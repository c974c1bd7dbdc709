# SPDX-License-Identifier: Apache-2.0
"""Trains a residual network on images, with momentum."""
import torch
from torch import nn
import remedy


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm_first, self.norm_second = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        y = torch.relu_(self.norm_first(self.first(x)))
        y = self.norm_second(self.second(y))
        y += x
        return torch.relu_(y)


class Net(nn.Module):
    def __init__(self, r):
        super().__init__()
        self.r, self.stem, self.head = r, nn.Conv2d(3, 48, 3, padding=1), nn.Linear(48, 10)
        self.blocks = nn.ModuleList(Residual(48) for _ in range(8))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = self.r.call(block, x)
        return self.head(x.mean((2, 3)))


def job(r):
    net = r.model(Net(r))
    optimizer = r.momentum(net.parameters())
    for _ in range(5):
        images, labels = r.input(r.batch(16), 3, 64, 64), torch.zeros(r.batch(16), dtype=torch.long, device="cuda")
        loss = nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        r.forget(net)


remedy.run(job)
