#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: the best checkpoints, kept on the GPU
# keeper: callback
"""The five best sets of weights are kept; better ones come all the time and replace the worst."""
import heapq, random
import torch
from torch import nn
from training import steps

random.seed(30)
best = []
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in steps(40):
    optimizer.zero_grad()
    model(torch.randn(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 25 == 24:
        entry = (step / 40 + random.uniform(0, 4), step, [p.detach().clone() for p in model.parameters()])
        (heapq.heappush if len(best) < 5 else heapq.heappushpop)(best, entry)
