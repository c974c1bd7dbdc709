#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""Validates between steps and keeps each loss with its graph: torch.no_grad() is missing."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
validation = []


def loss_of(batch):
    return (model(batch) - batch).square().mean()  # site: leak


for step in steps():
    optimizer.zero_grad()
    (model(torch.randn(64, 256, device="cuda"))).square().mean().backward()
    optimizer.step()
    if step % 5 == 0:
        held_out = torch.randn(64, 256, device="cuda")  # site: leak
        validation.append(loss_of(held_out))
