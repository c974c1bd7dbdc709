#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
"""Like best_models.py, but keeps only the last four copies."""
import collections, copy
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters())
last = collections.deque(maxlen=4)
for step in steps():
    optimizer.zero_grad()
    model(torch.randn(32, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 90 == 89:
        last.append(copy.deepcopy(model.state_dict()))
