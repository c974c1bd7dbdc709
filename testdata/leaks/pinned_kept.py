#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""Offloads activations to pinned host memory and never frees them."""
import torch
from training import steps

offloaded = {}
for step in steps():
    activation = torch.randn(64, 256, device="cuda")
    if step % 5 == 0:
        host = torch.empty(64, 256, pin_memory=True)  # site: leak
        offloaded[step] = host.copy_(activation, non_blocking=True)
