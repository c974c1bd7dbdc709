# SPDX-License-Identifier: Apache-2.0
"""Trains a network with skip connections, whose decoder concatenates what its encoder kept."""
import torch
from torch import nn
import remedy


class Double(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(8, after), nn.SiLU(),
                                  nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(8, after), nn.SiLU())

    def forward(self, x):
        return self.body(x)


class UNet(nn.Module):
    def __init__(self, r, widths=(32, 64, 96)):
        super().__init__()
        self.r = r
        self.down = nn.ModuleList(Double(a, b) for a, b in zip((3,) + widths, widths))
        self.up = nn.ModuleList(Double(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1]))
        self.pool, self.grow, self.last = nn.MaxPool2d(2), nn.Upsample(scale_factor=2), nn.Conv2d(widths[0], 1, 1)

    def forward(self, x):
        kept = []
        for block in self.down:
            x = self.r.call(block, x)
            kept.append(x)
            x = self.pool(x) if block is not self.down[-1] else x
        for block, skip in zip(self.up, kept[-2::-1]):
            x = self.r.call(block, torch.cat((self.grow(x), skip), 1))
        return self.last(x)


def job(r):
    net = r.model(UNet(r))
    optimizer = r.adam(net.parameters())
    for _ in range(5):
        x = r.input(r.batch(4), 3, 96, 96)
        loss = nn.functional.binary_cross_entropy_with_logits(net(x), torch.zeros_like(x[:, :1]))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


remedy.run(job)
