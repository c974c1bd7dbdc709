# SPDX-License-Identifier: Apache-2.0
"""Trains a vision model with attention in windows that are shifted, merged patches, and paths that are dropped."""
import torch
from torch import nn
import remedy


class Window(nn.Module):
    def __init__(self, width, heads, side, shift, drop=0.1):
        super().__init__()
        self.heads, self.side, self.shift, self.drop = heads, side, shift, drop
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(heads, side * side, side * side))
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def path(self, x):
        keep = torch.empty(len(x), 1, 1, 1, dtype=x.dtype, device=x.device).bernoulli_(1 - self.drop)
        return x * keep / (1 - self.drop)

    def forward(self, x):
        batch, height, width, channels = x.shape
        y = self.one(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        n = self.side
        y = y.view(batch, height // n, n, width // n, n, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n, channels)
        q, k, v = self.qkv(y).reshape(len(y), n * n, 3, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (channels // self.heads) ** -0.5) @ k.transpose(-2, -1) + self.bias
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(len(y), n * n, channels))
        y = y.view(batch, height // n, width // n, n, n, channels).permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + self.path(y)
        return x + self.path(self.mlp(self.two(x)))


class Merge(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x):
        corners = [x[:, a::2, b::2] for b in (0, 1) for a in (0, 1)]
        return self.reduce(self.norm(torch.cat(corners, -1)))


class Model(nn.Module):
    def __init__(self, r, width=48, side=7):
        super().__init__()
        self.r = r
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.stages, self.merges = nn.ModuleList(), nn.ModuleList()
        for depth, heads in ((2, 3), (2, 6), (2, 12)):
            self.stages.append(nn.ModuleList(Window(width, heads, side, 3 * (n % 2)) for n in range(depth)))
            self.merges.append(Merge(width) if heads < 12 else nn.Identity())
            width *= 2 if heads < 12 else 1
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x):
        x = self.patch(x).permute(0, 2, 3, 1)
        for stage, merge in zip(self.stages, self.merges):
            for block in stage:
                x = self.r.call(block, x)
            x = merge(x)
        return self.head(self.norm(x).mean((1, 2)))


def job(r):
    model = r.model(Model(r))
    optimizer = r.adam(model.parameters())
    for _ in range(4):
        x = r.input(r.batch(16), 3, 112, 112)
        loss = nn.functional.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.long, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


remedy.run(job)
