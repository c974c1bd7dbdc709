# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes low-rank adapters of a frozen model."""
import torch
from torch import nn
import remedy


class Adapted(nn.Module):
    def __init__(self, linear, rank=8):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down, self.up = nn.Linear(linear.in_features, rank, bias=False), nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


def job(r):
    model = remedy.Language(r, 8, 256).requires_grad_(False)
    for block in model.blocks:
        block.project, block.out = Adapted(block.project), Adapted(block.out)
    model = r.model(model)
    optimizer = r.adam(p for p in model.parameters() if p.requires_grad)
    for _ in range(6):
        x = remedy.tokens(8, 128)
        loss = remedy.guess(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


remedy.run(job)
