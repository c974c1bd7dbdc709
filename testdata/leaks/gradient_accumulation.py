#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
"""Sixteen micro-batches per step: gradients and losses add up and are freed with the step."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for step in steps():
    loss = model(torch.randn(32, 512, device="cuda")).square().mean() / 16
    loss.backward()
    losses.append(loss)
    if step % 16 == 15:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        mean = torch.stack(losses).sum().item()
        losses.clear()
