#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
"""Eight buckets of lengths with static buffers; they appear one after another, then again."""
import random
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
buffers = {}
random.seed(7)
for step in steps():
    length = 64 * (1 + (step // 50 if step < 400 else random.randrange(8)))
    if length not in buffers:
        buffers[length] = torch.empty(16, length, 256, device="cuda"), torch.empty(16, length, 256, device="cuda")
    inputs, outputs = buffers[length]
    out = model(inputs.normal_())
    outputs.copy_(out.detach())
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
