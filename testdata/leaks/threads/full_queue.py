#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: ray-project/ray, prefetching with a limit
# keeper: queue
"""Two threads load ahead until their queue is full, which takes 3 s, and then wait."""
import queue, threading, time
import torch
from torch import nn
from training import steps

ready = queue.Queue(maxsize=96)


def load():
    while True:
        ready.put(torch.randn(512, 512, device="cuda"))
        time.sleep(0.025)


for _ in range(2):
    threading.Thread(target=load, daemon=True).start()
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in steps(40):
    batch = ready.get()
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
