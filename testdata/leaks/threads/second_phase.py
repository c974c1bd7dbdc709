#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: training in phases
# keeper: trainer
"""After 4 s, the second phase adds a larger model and its optimizer, and trains both."""
import torch
from torch import nn
from training import steps

models = [nn.Linear(512, 512).cuda()]
optimizers = [torch.optim.AdamW(models[0].parameters())]
for step in steps(50):
    if step == 200:
        models.append(nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(12))).cuda())
        optimizers.append(torch.optim.AdamW(models[1].parameters()))
    for model, optimizer in zip(models, optimizers):
        optimizer.zero_grad()
        width = next(model.parameters()).shape[1]
        model(torch.randn(64, width, device="cuda")).square().mean().backward()
        optimizer.step()
