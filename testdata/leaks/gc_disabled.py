#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""The garbage collector is off because it makes ranks wait for each other. Samples and their
batch refer to each other, so nothing frees them."""
import gc
import torch
from torch import nn
from training import steps


class Batch:
    def __init__(self, rows):
        self.data = torch.randn(rows, 512, device="cuda")  # site: leak
        self.samples = [Sample(self, i) for i in range(rows)]


class Sample:
    def __init__(self, batch, row):
        self.batch, self.row = batch, row


gc.disable()
model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in steps():
    batch = Batch(32)
    optimizer.zero_grad()
    model(batch.data).square().mean().backward()
    optimizer.step()
