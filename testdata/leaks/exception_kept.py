#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""Skips bad batches and keeps their exceptions; the frames of each traceback hold tensors."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
failures = []


def train(step):
    batch = torch.randn(128, 256, device="cuda")  # site: leak
    loss = model(batch).mean()  # site: leak
    if step % 7 == 3:
        raise ValueError("batch %d has a label out of range" % step)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for step in steps():
    try:
        train(step)
    except ValueError as e:
        failures.append(e)
