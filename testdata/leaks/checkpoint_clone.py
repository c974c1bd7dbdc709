#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
"""Every 100 steps, clones model and optimizer, writes them to a file, and frees them."""
import copy
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters())
being_written = None
for step in steps():
    optimizer.zero_grad()
    model(torch.randn(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 100 == 50:
        being_written = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    if step % 100 == 80:
        being_written = None
