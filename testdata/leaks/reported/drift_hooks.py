#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: pytorch/pytorch#46386, of PyTorch hooks that keep what their functions refer to
# says: Leaking: 1 line
# says: leaking SITE watch
# says: kept by optimizer\._optimizer_step_post_hooks\[\*\]\.<closure before>
# advises: PyTorch hooks are added to optimizer\._optimizer_step_post_hooks and never removed: call remove\(\) of the handle
# says: optimizer state 4\.00 MiB
# never: tensor\.cpu\(\)
"""Each phase adds a PyTorch hook to the optimizer, whose function keeps a copy of the weights: they are no state of the optimizer."""
import torch
from training import steps

model = torch.nn.Linear(1024, 1024, bias=False).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def watch():
    before = model.weight.detach().clone()  # site
    optimizer.register_step_post_hook(lambda *arguments: before)


for step in steps(20):
    if step % 4 == 0:
        watch()
    optimizer.zero_grad()
    model(torch.empty(64, 1024, device="cuda")).mean().backward()
    optimizer.step()
