#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: verl-project/verl, memory that grows with each iteration
# keeper: attribute
# holder: actor.iterations[*]['log_probs']
"""An actor keeps the log-probabilities of each rollout for a report; the rest of it is freed."""
import torch
from torch import nn
from training import steps


class Actor:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1024)).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.iterations = []

    @torch.no_grad()
    def rollout(self):
        states = [torch.randn(128, 256, device="cuda") for _ in range(24)]
        return states, [self.model(s).log_softmax(dim=-1) for s in states]  # site: leak

    def update(self, state):
        self.optimizer.zero_grad()
        self.model(state).square().mean().backward()
        self.optimizer.step()


actor = Actor()
for step in steps(40):
    if step % 50 == 0:
        states, log_probs = actor.rollout()
        actor.iterations.append({"step": step, "log_probs": log_probs})
    actor.update(states[step % 24])
