#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: vllm-project/vllm#8629
# keeper: generator
"""Sequences of random length in flight, each a generator with a cache that grows page by page."""
import random
import torch
from torch import nn
from training import steps

random.seed(17)
model = nn.Linear(256, 256).cuda().eval()


@torch.inference_mode()
def sequence(length):
    pages = []
    for position in range(length):
        if position % 8 == 0:
            pages.append(torch.empty(2, 16, 32, 256, device="cuda"))
        model(torch.randn(32, 256, device="cuda"))
        yield position


flight = []
for step in steps(50):
    if len(flight) < 20:
        flight.append(sequence(random.randrange(10, 160)))
    flight = [s for s in flight if next(s, None) is not None]
