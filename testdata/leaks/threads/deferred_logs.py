#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: logging deferred until a flush that never comes
# keeper: closure
# holder: deferred[*]
"""Figures are written by closures at the next flush, so that no step waits; nothing flushes them."""
import torch
from torch import nn
from training import steps

deferred = []


def log_histogram(name, values):
    deferred.append(lambda: (name, values.histc(10)))


model = nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in steps(100):
    optimizer.zero_grad()
    output = model(torch.randn(64, 256, device="cuda"))
    output.square().mean().backward()
    optimizer.step()
    if step % 4 == 0:
        for parameter in model.parameters():
            log_histogram("gradients", parameter.grad.clone())  # site: leak
