#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: Lightning-AI/pytorch-lightning#5733
# keeper: metric
"""A metric keeps all predictions of an epoch of about 2.5 s, concatenates them, and is reset."""
import random
import torch
from torch import nn
from training import steps


class Metric:
    def __init__(self):
        self.predictions = []

    def update(self, scores):
        self.predictions.append(scores.detach())

    def compute(self):
        return torch.cat(self.predictions).mean()

    def reset(self):
        self.predictions.clear()


random.seed(2)
metric, end = Metric(), 120
model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in steps(50):
    scores = model(torch.randn(256, 128, device="cuda"))
    optimizer.zero_grad()
    scores.square().mean().backward()
    optimizer.step()
    metric.update(scores)
    if step == end:
        metric.compute().item()
        metric.reset()
        end += random.randrange(100, 150)
