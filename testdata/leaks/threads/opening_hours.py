#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
# thread: servers whose memory follows their traffic
# keeper: sessions
"""Sessions open from 2 s to 8 s, faster than others end; then as many end as begin."""
import random
import torch
from torch import nn
from training import steps

random.seed(23)
model = nn.Linear(256, 256).cuda().eval()
sessions = {}
for step in steps(60):
    if 120 <= step < 480 and step % 4 == 0 or step >= 480 and step % 12 == 0:
        if step >= 480:
            del sessions[random.choice(list(sessions))]
        with torch.inference_mode():
            sessions[step] = model(torch.randn(1024, 256, device="cuda"))
    with torch.inference_mode():
        for hidden in random.sample(list(sessions.values()), min(len(sessions), 3)):
            model(hidden[:32])
