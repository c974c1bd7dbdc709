#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
"""Like sawtooth.py, but an epoch has 500 steps: a minute contains only two or three."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
embeddings = []
for step in steps():
    optimizer.zero_grad()
    out = model(torch.randn(128, 256, device="cuda"))
    out.square().mean().backward()
    optimizer.step()
    embeddings.append(out.detach().half())
    if step % 500 == 499:
        neighbours = torch.cat(embeddings).float().norm(dim=1).topk(10)
        embeddings = []
