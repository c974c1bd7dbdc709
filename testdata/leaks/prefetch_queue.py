#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
"""A thread keeps up to 24 batches ready on the GPU, on a separate stream."""
import queue, threading
import torch
from torch import nn
from training import steps

ready = queue.Queue(maxsize=24)


def load():
    with torch.cuda.stream(torch.cuda.Stream()):
        while True:
            ready.put(torch.randn(64, 512, device="cuda"))


model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
threading.Thread(target=load, daemon=True).start()
for step in steps():
    optimizer.zero_grad()
    model(ready.get()).square().mean().backward()
    optimizer.step()
