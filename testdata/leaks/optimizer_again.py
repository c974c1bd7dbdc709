#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""Each epoch creates a new optimizer and keeps the schedulers of all epochs: these keep their
optimizers, which keep two moments of each parameter."""
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
