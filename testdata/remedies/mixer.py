# SPDX-License-Identifier: Apache-2.0
"""Trains a mixer of patches and channels, and keeps a moving average of its weights."""
import copy
import torch
from torch import nn
import remedy


class Mixing(nn.Module):
    def __init__(self, patches, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.within = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        x = x + self.across(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.second(x))


class Mixer(nn.Module):
    def __init__(self, r, layers=7, width=320, side=56, patch=7):
        super().__init__()
        self.r = r
        self.stem = nn.Conv2d(3, width, patch, patch)
        self.layers = nn.ModuleList(Mixing((side // patch) ** 2, width) for _ in range(layers))
        self.head = nn.Linear(width, 200)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = self.r.call(layer, x)
        return self.head(x.mean(1))


def job(r):
    model = r.model(Mixer(r))
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = r.adam(model.parameters())
    for _ in range(5):
        x = r.input(r.batch(48), 3, 56, 56)
        loss = nn.functional.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.long, device="cuda"), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.mul_(0.99).add_(p, alpha=0.01)


remedy.run(job)
