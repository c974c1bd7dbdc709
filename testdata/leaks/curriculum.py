#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
"""Sequences grow in five stages over the first 500 steps, then keep their length."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
memory = None
for step in steps():
    length = 64 * (1 + min(step // 100, 5))
    tokens = torch.zeros(8, length, dtype=torch.long, device="cuda")
    scores = model(tokens)
    optimizer.zero_grad()
    scores.square().mean().backward()
    optimizer.step()
    memory = scores.detach()
