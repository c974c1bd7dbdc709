#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: pinned batches that a loader's thread keeps for the next epoch
# keeper: thread
# holder: loader.seen[*]
"""A loader's thread pins each batch, and keeps it for an epoch that never begins again."""
import threading
import torch
from torch import nn
from training import steps


class Loader:
    def __init__(self):
        self.seen, self.wanted, self.there = [], threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            self.wanted.acquire()
            self.seen.append(torch.empty(256, 1024, pin_memory=True))  # site: leak
            self.there.release()

    def next(self):
        self.wanted.release()
        self.there.acquire()
        return self.seen[-1].to("cuda")


loader = Loader()
model = nn.Linear(1024, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in steps(30):
    optimizer.zero_grad()
    model(loader.next()).square().mean().backward()
    optimizer.step()
