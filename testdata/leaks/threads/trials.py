#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# frames: AddmmBackward0|AccumulateGrad
# thread: skorch-dev/skorch, optuna: trials that keep their models
# keeper: results of a search
# holder: study[*]['trainer']
"""A search keeps the whole trainer of each trial beside its score: model, gradients, optimizer."""
import torch
from torch import nn
from training import steps


class Trainer:
    def __init__(self, width):
        self.model = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, 256)).cuda()  # site: leak
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def fit(self):
        for _ in range(3):
            self.optimizer.zero_grad()
            self.model(torch.randn(64, 256, device="cuda")).square().mean().backward()
            self.optimizer.step()  # site: leak
        return 1.0


study = []
for step in steps(12):
    trainer = Trainer(512 + 64 * (step % 5))
    study.append({"score": trainer.fit(), "trainer": trainer})
