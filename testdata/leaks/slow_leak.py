#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""Shapes and losses vary, with evaluations and caches; every 50th step leaks 512 KiB."""
import collections, random
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
recent, samples = collections.deque(maxlen=20), []
random.seed(3)
for step in steps():
    rows = random.randrange(16, 512)
    batch = torch.randn(rows, 256, device="cuda")
    recent.append(torch.empty(random.randrange(1, 64), 4096, device="cuda"))
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    if step % 200 == 199:
        with torch.no_grad():
            scores = [model(torch.randn(2048, 256, device="cuda")) for _ in range(10)]
    if step % 50 == 0:
        samples.append(torch.empty(512, 256, device="cuda").copy_(batch[:1]))  # site: leak
