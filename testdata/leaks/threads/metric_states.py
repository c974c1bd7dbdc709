#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: Lightning-AI/torchmetrics#2481
# keeper: metric
# holder: metrics['mrr'].predictions[*]
"""A metric resets its states to their defaults; a clone shares the list that is the default, so that
nothing is ever forgotten."""
import copy
import torch
from torch import nn
from training import steps


class Metric:
    def __init__(self):
        self.defaults = {}
        self.add_state("predictions", [])

    def add_state(self, name, default):
        self.defaults[name] = default
        setattr(self, name, default)

    def update(self, scores):
        self.predictions.append(scores.detach())

    def reset(self):
        for name, default in self.defaults.items():
            setattr(self, name, default)


metrics = {"mrr": copy.copy(Metric())}
model = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in steps(70):
    scores = model(torch.randn(160, 128, device="cuda"))  # site: leak
    optimizer.zero_grad()
    scores.square().mean().backward()
    optimizer.step()
    metrics["mrr"].update(scores)
    if step % 140 == 139:
        for metric in metrics.values():
            metric.reset()
