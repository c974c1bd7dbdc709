# SPDX-License-Identifier: Apache-2.0
"""Trains a network that removes noise: convolutions that know the time, attention at the bottom, and shortcuts."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Timed(nn.Module):
    def __init__(self, before, after, time):
        super().__init__()
        self.first, self.second = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
        self.norms = nn.ModuleList((nn.GroupNorm(8, before), nn.GroupNorm(8, after)))
        self.time, self.drop = nn.Linear(time, 2 * after), nn.Dropout(0.1)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x, t):
        h = self.first(F.silu(self.norms[0](x)))
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, 1)
        h = self.norms[1](h) * (1 + scale) + shift
        return self.skip(x) + self.second(self.drop(F.silu(h)))


class Attending(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(8, width), nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x):
        flat = self.norm(x).flatten(2).transpose(1, 2)
        mixed, _ = self.attention(flat, flat, flat, need_weights=False)
        return x + mixed.transpose(1, 2).view_as(x)


class Denoiser(nn.Module):
    def __init__(self, r, width=32, time=128):
        super().__init__()
        self.r = r
        self.clock = nn.Sequential(nn.Linear(time, time), nn.SiLU(), nn.Linear(time, time))
        self.start, self.end = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        sizes = (width, 2 * width, 4 * width)
        self.down = nn.ModuleList(Timed(a, b, time) for a, b in zip(sizes, sizes[1:] + sizes[-1:]))
        self.middle = nn.ModuleList((Timed(sizes[-1], sizes[-1], time), Timed(sizes[-1], sizes[-1], time)))
        self.attend = Attending(sizes[-1])
        self.up = nn.ModuleList(Timed(a, b, time) for a, b in ((8 * width, 4 * width), (8 * width, 2 * width), (4 * width, width)))

    def forward(self, x, t):
        t = self.clock(t)
        x, kept = self.start(x), []
        for block in self.down:
            x = self.r.call(block, x, t)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.r.call(self.middle[1], self.attend(self.r.call(self.middle[0], x, t)), t)
        for block in self.up:
            x = self.r.call(block, torch.cat((F.interpolate(x, scale_factor=2.0), kept.pop()), 1), t)
        return self.end(F.silu(x))


def job(r):
    model = r.model(Denoiser(r))
    optimizer = r.adam(model.parameters())
    for _ in range(4):
        for _ in range(2):
            clean, t = r.input(r.batch(16), 3, 64, 64), r.input(r.batch(16), 128)
            noise = torch.empty_like(clean)
            loss = F.mse_loss(model(clean + noise, t), noise) / 2
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


remedy.run(job)
