#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
# thread: Lightning-AI/pytorch-lightning, fine-tuning in stages
# keeper: optimizer
"""Every 1.3 s another block is trained, the last from 7.8 s on; its optimizer is made at that time."""
import torch
from torch import nn
from training import steps

blocks = nn.ModuleList(nn.Sequential(nn.Linear(640, 640), nn.GELU(), nn.Linear(640, 640)) for _ in range(7)).cuda()
optimizers = []
for step in steps(40):
    if step % 52 == 0 and len(optimizers) < 7:
        optimizers.append(torch.optim.Adam(blocks[6 - len(optimizers)].parameters(), foreach=False))
    trained = len(optimizers)
    hidden = torch.randn(64, 640, device="cuda")
    with torch.no_grad():
        for block in blocks[:7 - trained]:
            hidden = block(hidden)
    for block in blocks[7 - trained:]:
        hidden = block(hidden)
    blocks.zero_grad()
    hidden.square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
