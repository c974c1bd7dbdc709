#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: verl-project/verl, weights that are gathered for the rollout
# keeper: worker
"""New weights are gathered bucket by bucket over 1 s; when all are there, they replace the old ones."""
import torch
from torch import nn
from training import steps


class Rollout:
    def __init__(self):
        self.weights, self.incoming = [], []

    def receive(self, bucket):
        self.incoming.append(bucket)
        if len(self.incoming) == 32:
            self.weights, self.incoming = self.incoming, []


rollout = Rollout()
model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in steps(50):
    optimizer.zero_grad()
    model(torch.randn(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 100 < 64 and step % 2 == 0:
        rollout.receive(torch.randn(1024, 512, device="cuda"))
