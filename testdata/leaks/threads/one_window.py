#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: graphs over a window of time
# keeper: autograd graph
"""The loss of 100 steps is summed with its graph, and the backward pass runs once for all."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
total = 0.0
for step in steps(50):
    total = total + model(torch.randn(128, 256, device="cuda")).square().mean()
    if step % 100 == 99:
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        total = 0.0
