#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
"""A server whose sessions start at random and last for random times, some short, some very long."""
import random
import torch
from training import steps

sessions = []
random.seed(12)
for step in steps():
    sessions = [s for s in sessions if s[0] > step]
    if random.random() < 0.3:
        end = step + min(random.paretovariate(0.8) * 5, 300)
        sessions.append((end, torch.zeros(random.randrange(64, 1024), 1024, device="cuda")))
    for _, state in sessions[:5]:
        state.add_(1)
