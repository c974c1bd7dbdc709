#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: caches with a limit
# keeper: library cache
"""A cache of the 150 last images is full after 5 s; then each new image evicts one."""
import functools, random
import torch
from torch import nn
from training import steps

random.seed(21)


@functools.lru_cache(maxsize=150)
def image(number):
    return torch.empty(3, 384, 384, device="cuda").fill_(number)


model = nn.Linear(384, 64).cuda().eval()
for step in steps(50):
    with torch.inference_mode():
        model(image(random.randrange(900)).flatten(0, 1)[:256])
