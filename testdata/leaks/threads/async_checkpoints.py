#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: checkpoints that are written in the background
# keeper: queue
"""Every 2 s the weights are copied for a thread that writes them, which takes it up to 1.5 s."""
import queue, random, threading, time
import torch
from torch import nn
from training import steps

checkpoints = queue.Queue()


def write():
    while True:
        copy = checkpoints.get()
        time.sleep(random.uniform(0.3, 1.5))
        del copy


threading.Thread(target=write, daemon=True).start()
model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in steps(40):
    optimizer.zero_grad()
    model(torch.randn(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 80 == 40:
        checkpoints.put({name: value.detach().clone() for name, value in model.state_dict().items()})
