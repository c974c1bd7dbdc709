#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: averaged weights, of which each evaluation adds a set
# keeper: attribute that is written anew
# holder: averages[*][*]
"""Moving averages of the weights are computed out of place, and each evaluation starts another one."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
averages = []
for step in steps(20):
    optimizer.zero_grad()
    model(torch.randn(64, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        weights = list(model.parameters())
        averages = [[torch.lerp(a, w, 0.01) for a, w in zip(average, weights)] for average in averages]  # site: leak
        if step % 20 == 0:
            averages.append([w.detach().clone() for w in weights])
