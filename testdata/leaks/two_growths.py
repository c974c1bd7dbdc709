#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# attach: early
"""A cache of the data set grows over the first 500 steps by more than the leak: the attention
weights of every third step, kept for a picture."""
import torch
from torch import nn
from training import steps

SAMPLES = 500
attend = nn.MultiheadAttention(128, 4, batch_first=True).cuda()
optimizer = torch.optim.AdamW(attend.parameters())
samples, pictures = {}, []
for step in steps():
    index = step % SAMPLES
    if index not in samples:
        samples[index] = torch.empty(8, 64, 128, device="cuda")
    x = samples[index]
    out, weights = attend(x, x, x)  # site: leak
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    if step % 3 == 0:
        pictures.append(weights.detach())
