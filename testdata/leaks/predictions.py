#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""Every 80 steps, an evaluation appends its predictions to a list that should be new each time."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters())


@torch.no_grad()
def evaluate(predictions=[]):
    model.eval()
    for _ in range(8):
        predictions.append(model(torch.randn(64, 128, device="cuda")))  # site: leak
    model.train()
    return torch.cat(predictions).mean()


for step in steps():
    optimizer.zero_grad()
    model(torch.randn(64, 128, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 80 == 79:
        evaluate()
