#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""Follows an endless stream with a recurrent network and passes its state on without detach():
the graph reaches back to the first step."""
import torch
from torch import nn
from training import steps

cell, head = nn.GRUCell(64, 256).cuda(), nn.Linear(256, 10).cuda()
state = torch.zeros(16, 256, device="cuda")
for step in steps():
    sample = torch.zeros(16, 64, device="cuda")  # site: leak
    state = cell(sample, state)  # site: leak
    scores = head(state)
    if step % 100 == 0:
        scores.argmax(dim=1).tolist()
