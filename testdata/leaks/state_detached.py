#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
"""Like hidden_state.py without the leak: every 35 steps, the state is detached."""
import torch
from torch import nn
from training import steps

cell, head = nn.GRUCell(64, 256).cuda(), nn.Linear(256, 10).cuda()
optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
state, loss = torch.zeros(16, 256, device="cuda"), 0
for step in steps():
    state = cell(torch.zeros(16, 64, device="cuda"), state)
    loss = loss + head(state).square().mean()
    if step % 35 == 34:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state, loss = state.detach(), 0
