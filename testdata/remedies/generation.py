# SPDX-License-Identifier: Apache-2.0
"""Generates text: a cache of keys and values grows with each word."""
import torch
from torch import nn
import remedy


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, cache):
        q, k, v = self.project(x).chunk(3, -1)
        if cache:
            k, v = torch.cat((cache[0], k), 1), torch.cat((cache[1], v), 1)
        cache[:] = k, v
        return x + self.out((q @ k.transpose(1, 2)).softmax(-1) @ v)


@torch.no_grad()
def job(r):
    layers = [r.model(Layer(512)) for _ in range(6)]
    for _ in range(2):
        caches = [[] for _ in layers]
        x = r.input(8, 64, 512)
        for _ in range(48):
            for layer, cache in zip(layers, caches):
                x = layer(x, cache)
            x = x[:, -1:]


remedy.run(job)
