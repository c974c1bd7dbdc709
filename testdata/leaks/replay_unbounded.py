#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""A replay buffer on the GPU without a limit."""
import random
import torch
from torch import nn
from training import steps

policy = nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()
optimizer = torch.optim.Adam(policy.parameters())
replay = []
random.seed(2)
for step in steps():
    with torch.no_grad():
        frame = torch.rand(16, 1024, device="cuda")  # site: leak
        action = policy(frame).argmax(dim=1)
    replay.append((frame, step))
    if step % 4 == 0:
        batch = torch.stack([frame for frame, _ in random.choices(replay, k=8)])
        optimizer.zero_grad()
        policy(batch).logsumexp(-1).mean().backward()
        optimizer.step()
