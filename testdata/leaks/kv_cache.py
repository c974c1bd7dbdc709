#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""Generates without a limit: each token concatenates the keys and values of all tokens, without
a sliding window. Only the newest cache is live, and each one is larger."""
import torch
from torch import nn
from training import steps

project = nn.Linear(512, 3 * 512).cuda()
keys = values = torch.zeros(4, 0, 512, device="cuda")
with torch.no_grad():
    for step in steps():
        token = torch.zeros(4, 1, 512, device="cuda")
        q, k, v = project(token).chunk(3, dim=-1)
        keys = torch.cat((keys, k), dim=1)  # site: leak
        values = torch.cat((values, v), dim=1)  # site: leak
        (q @ keys.transpose(1, 2)).softmax(-1) @ values
