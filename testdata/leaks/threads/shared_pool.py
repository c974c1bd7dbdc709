#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: one cache behind several callers
# keeper: library cache
"""A cache of 48 items that twelve layers share: any of them may have a few old items by chance."""
import random
import torch
from torch import nn
from training import steps


class Pool:
    def __init__(self, size):
        self.items = [None] * size

    def put(self, rows):
        self.items[random.randrange(len(self.items))] = torch.empty(rows, 512, device="cuda")


def caller(depth):
    source = "def layer(pool, rows):\n    pool.put(rows)\n"
    scope = {}
    exec(compile("\n" * depth + source, "layers.py", "exec"), scope)
    return scope["layer"]


random.seed(31)
layers, pool = [caller(depth) for depth in range(12)], Pool(48)
model = nn.Linear(512, 64).cuda().eval()
for step in steps(40):
    layers[random.randrange(12)](pool, random.randrange(200, 1500))
    with torch.inference_mode():
        model(torch.randn(64, 512, device="cuda"))
