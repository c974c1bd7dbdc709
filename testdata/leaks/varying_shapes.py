#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
"""Batches and sequences of any length, some ten times as long as most."""
import random
import torch
from torch import nn
from training import steps


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.project(x).chunk(3, dim=-1)
        return self.out((q @ k.transpose(-1, -2)).softmax(-1) @ v)


model = Attention(256).cuda()
optimizer = torch.optim.AdamW(model.parameters())
random.seed(5)
for step in steps():
    length = int(random.lognormvariate(4, 0.8)) + 1
    x = torch.randn(random.randrange(1, 33), min(length, 1000), 256, device="cuda")
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
