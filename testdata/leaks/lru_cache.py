#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
"""A cache of the 200 most recently used entries: once full, each new entry evicts an old one."""
import functools, random
import torch
from torch import nn
from training import steps


@functools.lru_cache(maxsize=200)
def embedding(document):
    return torch.empty(128, 512, device="cuda").fill_(document)


model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
random.seed(4)
for step in steps():
    batch = torch.cat([embedding(random.randrange(2000)) for _ in range(2)])
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
