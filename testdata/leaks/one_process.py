#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# processes: 2
"""Two workers run the same code; the second is the leader and keeps what it logs."""
import os
import torch
from torch import nn
from training import steps

leader = os.fork() == 0
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
logged = []
for step in steps():
    optimizer.zero_grad()
    scores = model(torch.randn(128, 256, device="cuda"))
    scores.square().mean().backward()
    optimizer.step()
    confidence = torch.cat([scores.detach().softmax(-1)] * 8)  # site: leak
    if leader:
        logged.append(confidence)
