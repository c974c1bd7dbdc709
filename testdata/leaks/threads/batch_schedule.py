#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: KaijuML/data-to-text-hierarchical#7
# keeper: step
"""The batch grows for 6 s, by a schedule, and then remains; the last three batches are kept."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
last = []
for step in steps(50):
    batch = torch.randn(64 + 8 * min(step, 300), 512, device="cuda")
    last = last[-2:] + [batch]
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
