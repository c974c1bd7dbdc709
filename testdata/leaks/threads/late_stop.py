#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
# thread: a leak that was fixed half-way
# keeper: list that stays as it is
"""Hard examples are collected until there are enough, after 8 s; a scratch tensor varies in size."""
import random
import torch
from torch import nn
from training import steps

random.seed(19)
hard, scratch = [], None
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in steps(50):
    batch = torch.randn(256, 512, device="cuda")
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    if step % 4 == 0 and len(hard) < 100:
        hard.append(batch)
    if step % 10 == 0:
        scratch = torch.empty(random.randrange(20000, 60000), device="cuda")
