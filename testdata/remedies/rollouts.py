# SPDX-License-Identifier: Apache-2.0
"""Collects experience without gradients, keeps its log-probabilities, and trains on it in two passes for each step."""
import torch
from torch import nn
import remedy


def job(r):
    policy = r.model(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512)))
    optimizer = r.adam(policy.parameters())
    history = []
    for _ in range(4):
        with torch.no_grad():
            states = [r.input(1024, 256) for _ in range(6)]
            for state in states:
                history.append(r.keep(policy(state).log_softmax(-1)))  # site: kept
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            for state in states[:2]:
                policy(state).log_softmax(-1).mean().backward()
            optimizer.step()


remedy.run(job)
