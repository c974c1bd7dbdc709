#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: huggingface/transformers#6999
# holder: trainer.total (autograd graph)
"""A trainer sums its losses without detach(): the sum holds the graph of each step. What the graph
saves is the activations, which no backward pass freed, because only a part of the loss is trained."""
import torch
from torch import nn
from training import steps


class Trainer:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).cuda()
        self.head = nn.Linear(256, 256).cuda()
        self.optimizer = torch.optim.SGD(self.head.parameters(), lr=0.1)
        self.total = 0.0

    def step(self, batch):
        with torch.no_grad():
            features = batch * 0.5  # site: leak
        encoded = self.model(features)  # site: leak
        auxiliary = (encoded - batch).square().mean()  # site: leak
        loss = self.head(batch).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.total += loss + 0.1 * auxiliary


trainer = Trainer()
for step in steps(50):
    batch = torch.randn(128, 256, device="cuda")
    trainer.step(batch)
