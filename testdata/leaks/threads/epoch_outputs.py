#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: Lightning-AI/pytorch-lightning#5735
# keeper: loop
"""An evaluation loop keeps its outputs until the next evaluation begins, every 2.5 s."""
import torch
from torch import nn
from training import steps


class Loop:
    def __init__(self):
        self.outputs = []

    @torch.no_grad()
    def run(self):
        self.outputs = []
        for _ in range(20):
            self.outputs.append(model(torch.randn(512, 256, device="cuda")))


loop = Loop()
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in steps(40):
    optimizer.zero_grad()
    model(torch.randn(64, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 100 == 50:
        loop.run()
