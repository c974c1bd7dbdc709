#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: a leak that was fixed half-way
# keeper: list that stays as it is
"""For the first 5 s, predictions are kept for a first report; then that is switched off."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
first = []
for step in steps(50):
    scores = model(torch.randn(256, 256, device="cuda"))
    optimizer.zero_grad()
    scores.square().mean().backward()
    optimizer.step()
    if step < 250:
        first.append(scores.detach())
