#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
"""Like loss_list.py without the leak: keeps losses as numbers and the latest 40 graphs."""
import collections
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
numbers, window, smoothed = [], collections.deque(maxlen=40), 0
for step in steps():
    optimizer.zero_grad()
    loss = model(torch.randn(64, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    numbers.append(loss.item())
    smoothed = 0.99 * smoothed + 0.01 * loss.detach()
    if step % 5 == 0:
        window.append(model(torch.randn(64, 256, device="cuda")).square().mean())
