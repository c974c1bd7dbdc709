#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: executors whose futures are all kept
# keeper: future
# holder: futures[*]._result
"""Batches are prepared in a pool of threads; the list of futures is there to wait for them in the end."""
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn
from training import steps


def prepare(step):
    return torch.randn(512, 512, device="cuda") / 255  # site: leak


pool, futures = ThreadPoolExecutor(2), []
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in steps(40):
    futures.append(pool.submit(prepare, step))
    optimizer.zero_grad()
    model(futures[step].result()).square().mean().backward()
    optimizer.step()
