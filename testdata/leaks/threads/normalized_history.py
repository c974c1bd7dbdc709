#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: running statistics that are re-normalized in each step
# keeper: attribute that is written anew
# holder: tracker.values[*]
"""All values so far are normalized anew in each step: all tensors are new, and one more each time."""
import torch
from torch import nn
from training import steps


class Tracker:
    def __init__(self):
        self.values = []

    def add(self, value):
        self.values = [old * 0.999 for old in self.values] + [value]  # site: leak


tracker = Tracker()
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in steps(10):
    optimizer.zero_grad()
    output = model(torch.randn(256, 128, device="cuda"))
    output.square().mean().backward()
    optimizer.step()
    tracker.add(output.detach().clone())
