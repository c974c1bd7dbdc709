#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""Every 60 steps, a copy of the best model so far stays on the GPU, for an average at the end."""
import copy
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters())
best = []
for step in steps():
    optimizer.zero_grad()
    model(torch.randn(32, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 60 == 59:
        best.append(copy.deepcopy(model.state_dict()))  # site: leak
