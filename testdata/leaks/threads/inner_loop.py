#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: facebookresearch/higher#6
# holder: trace[*][*]
"""Meta-learning keeps the weights of each inner step, with their graph, outside of the episode."""
import torch
from torch import nn
from training import steps

weight = nn.Parameter(torch.randn(384, 384, device="cuda") * 0.05)
optimizer = torch.optim.SGD([weight], lr=0.01)
trace = []
for step in steps(40):
    fast, batch = weight, torch.randn(64, 384, device="cuda")
    for _ in range(2):
        loss = (batch @ fast).square().mean()
        (gradient,) = torch.autograd.grad(loss, fast, create_graph=True)
        fast = fast - 0.01 * gradient  # site: leak
    optimizer.zero_grad()
    (batch @ fast).square().mean().backward()
    optimizer.step()
    if step % 2 == 0:
        trace.append((step, fast.detach()))
