#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: objects that subscribe to events and never leave
# keeper: callback
# holder: bus.handlers['step'][*].buffer
"""Each evaluation makes an object that subscribes to the steps, and is kept by that alone."""
import torch
from torch import nn
from training import steps


class Bus:
    def __init__(self):
        self.handlers = {"step": []}

    def publish(self, event, step):
        for handler in self.handlers[event]:
            handler(step)


class Evaluation:
    def __init__(self, bus):
        self.buffer = torch.zeros(2048, 1024, device="cuda")  # site: leak
        bus.handlers["step"].append(self.on_step)

    def on_step(self, step):
        pass


bus = Bus()
model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in steps(50):
    optimizer.zero_grad()
    model(torch.randn(512, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    bus.publish("step", step)
    if step % 30 == 0:
        Evaluation(bus)
