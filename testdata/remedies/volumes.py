# SPDX-License-Identifier: Apache-2.0
"""Trains a network on volumes with losses at two sizes, two volumes for each step, and measures itself without a graph."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Unit(nn.Module):
    def __init__(self, before, after, stride=1):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(before, after, 3, stride, 1), nn.InstanceNorm3d(after, affine=True), nn.LeakyReLU(0.01, inplace=True),
            nn.Conv3d(after, after, 3, 1, 1), nn.InstanceNorm3d(after, affine=True), nn.LeakyReLU(0.01, inplace=True))

    def forward(self, x):
        return self.layers(x)


class Net(nn.Module):
    def __init__(self, r, widths=(8, 16, 32), kinds=3):
        super().__init__()
        self.r = r
        self.down = nn.ModuleList(Unit(a, b, 1 if a == 1 else 2) for a, b in zip((1,) + widths, widths))
        self.grow = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(Unit(2 * a, a) for a in widths[:-1])
        self.said = nn.ModuleList(nn.Conv3d(a, kinds, 1) for a in widths[:-1])

    def forward(self, x):
        kept = []
        for unit in self.down:
            x = self.r.call(unit, x)
            kept.append(x)
        kept.pop()
        out = []
        for grow, up, said in reversed(list(zip(self.grow, self.up, self.said))):
            x = self.r.call(up, torch.cat((grow(x), kept.pop()), 1))
            out.append(said(x))
        return out


def job(r):
    net = r.model(Net(r))
    optimizer = r.momentum(net.parameters())
    for step in range(3):
        for _ in range(2):
            x = r.input(r.batch(1), 1, 48, 64, 64)
            loss = 0
            for n, said in enumerate(reversed(net(x))):
                target = torch.zeros(said.shape[0], *said.shape[2:], dtype=torch.long, device="cuda")
                loss = loss + F.cross_entropy(said, target) / 2 ** n
                with torch.no_grad():
                    (said.argmax(1) == target).float().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


remedy.run(job)
