#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: buffers that are full, whose items differ in size
# keeper: bounded container
"""A buffer of 120 episodes is full after 4 s; then each new episode, of another length, replaces one."""
import random
import torch
from torch import nn
from training import steps

random.seed(6)
episodes = []
model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in steps(60):
    optimizer.zero_grad()
    model(torch.randn(64, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 2 == 0:
        episode = torch.randn(random.randrange(256, 2048), 256, device="cuda")
        if len(episodes) < 120:
            episodes.append(episode)
        else:
            episodes[random.randrange(120)] = episode
