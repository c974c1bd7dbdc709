#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: anomalies that are kept for later
# keeper: debugger
# holder: debugger.dumps[*][*]
"""Where a loss is unusual, all tensors of the step are kept; that happens in bursts."""
import random
import torch
from torch import nn
from training import steps


class Debugger:
    def __init__(self):
        self.dumps = []

    def dump(self, tensors):
        self.dumps.append([t.detach().clone() for t in tensors])  # site: leak


random.seed(11)
debugger = Debugger()
model = nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 256)).cuda()
optimizer = torch.optim.Adam(model.parameters())
trouble = 0
for step in steps(60):
    batch = torch.randn(128, 256, device="cuda")
    output = model(batch)
    optimizer.zero_grad()
    output.square().mean().backward()
    optimizer.step()
    if random.random() < 0.012:
        trouble = 3
    if trouble:
        trouble -= 1
        debugger.dump([batch, output, *model.parameters(), *(p.grad for p in model.parameters())])
