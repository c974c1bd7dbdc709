#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: pytorch/pytorch#1346, of gradients that nobody clears
# long: its one stack is lost on a busy machine
# says: Leaking: 1 line
# says: leaking torch::autograd::AccumulateGrad::apply
# says: sparse gradients add up until they are cleared: call zero_grad\(\) of the module in each step
# never: copy their figures
# never: reportMemoryUsageToProfiler
"""An embedding is left out of the optimizer to freeze it. It still gets sparse gradients, which are appended to those of all steps before."""
import torch
from torch import nn
from training import steps

embedding = nn.Embedding(10000, 64, sparse=True).cuda()
head = nn.Linear(64, 10).cuda()
optimizer = torch.optim.SGD(head.parameters(), 0.1)
for step in steps(20):
    loss = head(embedding(torch.zeros(512, dtype=torch.long, device="cuda"))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
