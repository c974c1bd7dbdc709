#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: fastai/fastai#2946
# keeper: optimizer
"""Frozen layers are unfrozen one by one, the last after 5 s: each gets gradients and moments."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(*(nn.Linear(768, 768) for _ in range(8))).cuda()
for layer in model[:-1]:
    layer.requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters())
for step in steps(60):
    if step % 40 == 39 and step < 300:
        model[max(6 - step // 40, 0)].requires_grad_(True)
    optimizer.zero_grad(set_to_none=False)
    model(torch.randn(64, 768, device="cuda")).square().mean().backward()
    optimizer.step()
