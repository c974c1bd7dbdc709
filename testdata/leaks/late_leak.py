#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# attach: early
"""No leak until half of --seconds has passed: then the loss is low enough to look at hard
examples, which are kept."""
import time
import torch
from torch import nn
from training import options, steps

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
optimizer = torch.optim.Adam(model.parameters())
hard = []
begin, late = time.monotonic(), options().seconds / 2
for step in steps():
    batch = torch.randn(64, 256, device="cuda")
    errors = (model(batch) - batch).square().mean(dim=1)
    optimizer.zero_grad()
    errors.mean().backward()
    optimizer.step()
    if time.monotonic() - begin > late and step % 2 == 0:
        hard.append(batch[:32].clone())  # site: leak
