#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
"""Every 120 steps, an evaluation with larger batches collects its predictions for one figure."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
best = None


@torch.no_grad()
def evaluate():
    predictions = [model(torch.randn(512, 256, device="cuda")) for _ in range(16)]
    return torch.cat(predictions).argmax(dim=1).float().mean()


for step in steps():
    optimizer.zero_grad()
    model(torch.randn(64, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 120 == 119:
        accuracy = evaluate()
        best = accuracy if best is None else torch.maximum(best, accuracy)
