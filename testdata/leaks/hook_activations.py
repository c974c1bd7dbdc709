#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""A forward hook appends a layer's output in each step, for statistics that are never cleared."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
outputs = []
model[2].register_forward_hook(lambda module, inputs, output: outputs.append(output.detach()))
for step in steps():
    batch = torch.randn(48, 128, device="cuda")
    scores = model(batch)  # site: leak
    optimizer.zero_grad()
    scores.square().mean().backward()
    optimizer.step()
