#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: verl-project/verl, states that go to the host and come back
# keeper: attribute that is written anew
# holder: worker.states[*]
"""Every second all states go to the host and come back, one more each time: the old ones are never used."""
import torch
from torch import nn
from training import steps


class Worker:
    def __init__(self):
        self.states = [torch.zeros(1024, 1024)]

    def wake_up(self):
        self.states = [s.to("cuda") for s in self.states]  # site: leak

    def sleep(self):
        self.states = [torch.zeros_like(s, device="cpu") for s in self.states]
        for _ in range(4):
            self.states.append(torch.zeros(1024, 1024))


worker = Worker()
model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in steps(40):
    if step % 40 == 0:
        worker.wake_up()
    optimizer.zero_grad()
    model(torch.randn(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 40 == 35:
        worker.sleep()
