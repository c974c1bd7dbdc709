#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
"""Sizes that never fit into existing holes: PyTorch reserves more; live memory is constant."""
import collections, random
import torch
from training import steps

held = collections.deque(maxlen=24)
random.seed(8)
for step in steps():
    mib = 2 + step % 37 + random.random()
    held.append(torch.empty(int(mib * (1 << 20)), dtype=torch.uint8, device="cuda"))
    if step % 3 == 0 and len(held) > 20:
        del held[random.randrange(len(held))]
