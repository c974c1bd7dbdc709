#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# frames: AddmmBackward0::apply
"""Keeps every tenth step's gradients to compare them later; zero_grad() only drops its
references. The backward pass, which allocates them, runs on a thread without Python."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = []
for step in steps():
    optimizer.zero_grad()
    model(torch.randn(64, 256, device="cuda")).square().mean().backward()
    if step % 10 == 0:
        history.append([p.grad for p in model.parameters()])
    optimizer.step()
