#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: caches by shape that are complete after some time
# keeper: library cache
"""A workspace per shape of a batch: common shapes come first, rare ones until 6 s have passed."""
import random
import torch
from torch import nn
from training import steps

random.seed(9)
workspaces = {}
model = nn.Linear(256, 256).cuda().eval()
for step in steps(60):
    rare = min(step // 6, 47)
    shape = 8 * (1 + (rare if step % 6 == 0 else random.randrange(rare + 1)))
    if shape not in workspaces:
        workspaces[shape] = torch.empty(16 * shape, 256, 4, device="cuda")
    with torch.inference_mode():
        model(torch.randn(shape, 256, device="cuda"))
