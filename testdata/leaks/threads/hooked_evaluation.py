#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: chr5tphr/zennit#13
# keeper: forward hook
"""Every 2 s, forward hooks keep the features of each layer for one evaluation, without gradients."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())


def evaluate():
    features = []
    handles = [layer.register_forward_hook(lambda m, i, o: features.append(o)) for layer in model]
    with torch.no_grad():
        for _ in range(16):
            model(torch.randn(512, 256, device="cuda"))
    for handle in handles:
        handle.remove()
    return torch.stack([f.std() for f in features]).mean().item()


for step in steps(40):
    optimizer.zero_grad()
    model(torch.randn(64, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 80 == 60:
        evaluate()
