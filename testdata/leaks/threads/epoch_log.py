#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: Lightning-AI/pytorch-lightning#4556
# keeper: logger
# holder: logger.results['train'][*]['logits']
"""A logger averages at the end of an epoch, for which it keeps each result; the epoch is endless."""
import collections
import torch
from torch import nn
from training import steps


class Logger:
    def __init__(self):
        self.results = collections.defaultdict(list)

    def log(self, stage, result):
        self.results[stage].append({name: value.detach() for name, value in result.items()})


def training_step(model, batch):
    logits = model(batch)  # site: leak
    return {"loss": logits.square().mean(), "logits": logits}


model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
logger = Logger()
for step in steps(80):
    result = training_step(model, torch.randn(96, 256, device="cuda"))
    optimizer.zero_grad()
    result["loss"].backward()
    optimizer.step()
    logger.log("train", result)
