#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: replay buffers that begin to fill after a warm-up
# keeper: bounded container
"""Learning starts after 1.5 s; from then on a buffer fills, and is full 4 s later."""
import collections
import torch
from torch import nn
from training import steps

buffer = collections.deque(maxlen=240)
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in steps(60):
    state = torch.randn(512, 512, device="cuda")
    optimizer.zero_grad()
    model(state).square().mean().backward()
    optimizer.step()
    if step >= 90:
        buffer.append(state)
