#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
"""Copies the next batch to the GPU while it computes; each batch lives one step longer."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
host = [torch.empty(128, 512, pin_memory=True) for _ in range(2)]
loads = torch.cuda.Stream()
following = None
for step in steps():
    current, following = following, None
    with torch.cuda.stream(loads):
        following = host[step % 2].to("cuda", non_blocking=True)
    if current is not None:
        optimizer.zero_grad()
        model(current).square().mean().backward()
        optimizer.step()
    torch.cuda.current_stream().wait_stream(loads)
