#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
"""The first epoch of 600 steps puts each sample on the GPU; later epochs reuse them."""
import torch
from torch import nn
from training import steps

EPOCH = 600
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
samples = [None] * EPOCH
for step in steps():
    index = step * 7 % EPOCH  # the same order in each epoch
    if samples[index] is None:
        samples[index] = torch.empty(64, 512, device="cuda")
    optimizer.zero_grad()
    model(samples[index]).square().mean().backward()
    optimizer.step()
