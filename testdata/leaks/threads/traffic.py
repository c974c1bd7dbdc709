#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: servers whose memory follows their traffic
# keeper: coroutine
"""Requests in flight: from one at a time to forty, over 6 s; then the traffic stays as it is."""
import random
import torch
from torch import nn
from training import steps

model = nn.Linear(512, 512).cuda().eval()
flight = []
random.seed(3)
for step in steps(60):
    most = 1 + min(step, 360) * 40 // 360
    flight = [r for r in flight if r[0] > step]
    with torch.inference_mode():
        while len(flight) < most:
            flight.append((step + random.randrange(10, 40), model(torch.randn(512, 512, device="cuda"))))
        for _, hidden in flight[:8]:
            model(hidden[:64])
