#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: vllm-project/vllm#28726
# keeper: cycles
"""The collector is off, for steps of equal length, and runs every 3 s: garbage comes in waves."""
import gc
import torch
from torch import nn
from training import steps


class Batch:
    def __init__(self):
        self.data = torch.randn(256, 1024, device="cuda")
        self.views = [View(self, i) for i in range(4)]


class View:
    def __init__(self, batch, index):
        self.batch, self.index = batch, index


gc.disable()
model = nn.Linear(1024, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in steps(60):
    batch = Batch()
    optimizer.zero_grad()
    model(batch.data).square().mean().backward()
    optimizer.step()
    if step % 180 == 179:
        gc.collect()
