# SPDX-License-Identifier: Apache-2.0
"""Trains a generator and a discriminator in turn, each with an optimizer."""
import torch
from torch import nn
import remedy


class Stage(nn.Module):
    def __init__(self, before, after, up):
        super().__init__()
        self.body = nn.Sequential(nn.Upsample(scale_factor=2) if up else nn.Identity(), nn.Conv2d(before, after, 3, 1 if up else 2, 1), nn.GroupNorm(4, after), nn.LeakyReLU(0.2))

    def forward(self, x):
        return self.body(x)


class Chain(nn.Module):
    def __init__(self, r, widths, up, first, last):
        super().__init__()
        self.r, self.first, self.last = r, first, last
        self.stages = nn.ModuleList(Stage(a, b, up) for a, b in zip(widths, widths[1:]))

    def forward(self, x):
        x = self.first(x)
        for stage in self.stages:
            x = self.r.call(stage, x)
        return self.last(x)


def job(r):
    make = r.model(Chain(r, (128, 96, 64, 32), True, nn.Sequential(nn.Linear(100, 128 * 64), nn.Unflatten(1, (128, 8, 8))), nn.Conv2d(32, 3, 3, padding=1)))
    judge = r.model(Chain(r, (32, 64, 96, 128), False, nn.Conv2d(3, 32, 3, padding=1), nn.Sequential(nn.Flatten(), nn.Linear(128 * 64, 1))))
    makes, judges = r.adam(make.parameters()), r.adam(judge.parameters())
    for _ in range(5):
        real, noise = r.input(r.batch(24), 3, 64, 64), r.input(r.batch(24), 100)
        judges.zero_grad()
        loss = nn.functional.softplus(-judge(real)).mean() + nn.functional.softplus(judge(make(noise).detach())).mean()
        loss.backward()
        judges.step()
        makes.zero_grad()
        nn.functional.softplus(-judge(make(noise))).mean().backward()
        makes.step()


remedy.run(job)
