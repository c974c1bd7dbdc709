#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
"""Like gc_disabled.py, but the collector runs and frees the garbage from time to time."""
import torch
from torch import nn
from training import steps


class Batch:
    def __init__(self, rows):
        self.data = torch.randn(rows, 512, device="cuda")
        self.samples = [Sample(self, i) for i in range(rows)]


class Sample:
    def __init__(self, batch, row):
        self.batch, self.row = batch, row


model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in steps():
    batch = Batch(32)
    optimizer.zero_grad()
    model(batch.data).square().mean().backward()
    optimizer.step()
