#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""An agent sums its critic's values of each state: the sum refers to the graphs of all of them."""
import torch
from torch import nn
from training import steps


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(128, 512), nn.Linear(512, 1)

    def forward(self, states):
        hidden = torch.tanh(self.inner(states))  # site: leak
        return self.outer(hidden)


critic = Critic().cuda()
total = 0
for step in steps():
    states = torch.zeros(32, 128, device="cuda")  # site: leak
    value = critic(states).mean()
    total += value
print("mean value %.3f" % (total.item() / (step + 1)))
