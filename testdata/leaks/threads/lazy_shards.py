#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: weights that are loaded when they are first used
# keeper: library cache
"""Experts are moved to the GPU on first use: 64 of them, all there after about 6 s."""
import random
import torch
from torch import nn
from training import steps

random.seed(14)


class Experts:
    def __init__(self):
        self.loaded = {}

    def __getitem__(self, number):
        if number not in self.loaded:
            self.loaded[number] = nn.Linear(768, 768).cuda().eval()
        return self.loaded[number]


experts, order = Experts(), random.sample(range(64), 64)
for step in steps(40):
    number = order[random.randrange(min(step // 4 + 1, 64))] if step % 4 else order[min(step // 4, 63)]
    with torch.inference_mode():
        experts[number](torch.randn(64, 768, device="cuda"))
