#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""A thread loads batches onto the GPU faster than training uses them; the queue is unbounded."""
import queue, threading, time
import torch
from torch import nn
from training import steps

ready = queue.Queue()


def load():
    while True:
        ready.put(torch.randn(64, 512, device="cuda"))  # site: leak
        time.sleep(0.003)


model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
threading.Thread(target=load, daemon=True).start()
for step in steps():
    batch = ready.get()
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    time.sleep(0.003)  # a step that takes longer than a load
