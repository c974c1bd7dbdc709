#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""Each epoch begins with a new optimizer, and the schedulers of all epochs are kept: with their optimizers, and these
with two moments of each parameter."""
import torch
from torch import nn
from training import steps

EPOCH = 60
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
schedulers = []
for step in steps():
    if step % EPOCH == 0:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        schedulers.append(torch.optim.lr_scheduler.LinearLR(optimizer))
    optimizer.zero_grad()
    model(torch.randn(16, 512, device="cuda")).square().mean().backward()
    optimizer.step()  # site: leak
    schedulers[-1].step()
