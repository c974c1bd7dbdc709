#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""Gigabytes of weights and moments are constant, and each step allocates and frees half a
gigabyte of activations; each step leaks 16 KiB."""
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(8192, 8192, device="cuda"), nn.ReLU(), nn.Linear(8192, 8192, device="cuda"))
optimizer = torch.optim.Adam(model.parameters())
norms = []
for step in steps():
    optimizer.zero_grad()
    out = model(torch.randn(4096, 8192, device="cuda"))
    norms.append(out.detach().norm(dim=1))  # site: leak
    out.square().mean().backward()
    optimizer.step()
