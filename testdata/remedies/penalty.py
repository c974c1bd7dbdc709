# SPDX-License-Identifier: Apache-2.0
"""Trains a critic whose gradients at points between real and made ones are penalized, so its backward pass is differentiated too."""
import torch
from torch import nn
import remedy


class Stage(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.straight, self.skip = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(before, after, 1)
        self.second = nn.Conv2d(after, after, 3, padding=1)

    def forward(self, x):
        y = nn.functional.softplus(self.straight(x))
        return nn.functional.avg_pool2d(self.second(y) + self.skip(x), 2)


class Critic(nn.Module):
    def __init__(self, r, widths=(3, 32, 64, 96)):
        super().__init__()
        self.r = r
        self.stages = nn.ModuleList(Stage(a, b) for a, b in zip(widths, widths[1:]))
        self.score = nn.Linear(widths[-1] * 16, 1)

    def forward(self, x):
        for stage in self.stages:
            x = self.r.call(stage, x)
        return self.score(x.flatten(1))


def job(r):
    critic = r.model(Critic(r))
    optimizer = r.adam(critic.parameters())
    for _ in range(4):
        batch = r.batch(24)
        real, made = r.input(batch, 3, 32, 32), r.input(batch, 3, 32, 32)
        between = (real * 0.5 + made * 0.5).requires_grad_()
        slope, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        loss = critic(made).mean() - critic(real).mean() + 10 * (slope.flatten(1).norm(dim=1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


remedy.run(job)
