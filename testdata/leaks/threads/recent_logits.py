#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: moving averages over the last steps
# keeper: bounded container
"""A callback keeps the logits of the last 200 steps, which are there after 4 s."""
import collections
import torch
from torch import nn
from training import steps


class Smoother:
    def __init__(self):
        self.last = collections.deque(maxlen=200)

    def __call__(self, logits):
        self.last.append(logits)
        return sum(x.shape[0] for x in self.last)


smoother = Smoother()
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in steps(50):
    logits = model(torch.randn(300, 256, device="cuda"))
    optimizer.zero_grad()
    logits.square().mean().backward()
    optimizer.step()
    smoother(logits.detach())
