#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# frames: AccumulateGrad::apply
"""A gradient penalty with backward(create_graph=True): input and gradient refer to each other in
a cycle that Python's collector does not see."""
import warnings
import torch
from torch import nn
from training import steps

warnings.simplefilter("ignore")
critic = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)).cuda()
optimizer = torch.optim.Adam(critic.parameters())
for step in steps():
    if step % 4 == 0:
        images = torch.randn(64, 256, device="cuda", requires_grad=True)  # site: leak
        scores = critic(images)
        scores.backward(torch.ones_like(scores), create_graph=True)
        penalty = (images.grad.norm(2, dim=1) - 1).square().mean()
        optimizer.zero_grad()
        penalty.backward()
    else:
        optimizer.zero_grad()
        critic(torch.randn(64, 256, device="cuda")).mean().backward()
    optimizer.step()
