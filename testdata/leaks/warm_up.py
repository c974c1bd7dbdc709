#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
"""The first steps allocate memory that stays: Adam's moments, the scaler's state, workspaces of
libraries, and from step 100 on a part of the model that was frozen."""
import torch
from torch import nn
from training import steps

body, head = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda(), nn.Linear(512, 100).cuda()
body.requires_grad_(False)
optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()])
scaler = torch.amp.GradScaler("cuda")
for step in steps():
    if step == 100:
        body.requires_grad_(True)
    with torch.autocast("cuda", torch.float16):
        loss = head(body(torch.randn(64, 512, device="cuda"))).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
