#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# devices: 2
"""A pipeline of two stages, each on a GPU; the second keeps all of its inputs."""
import torch
from torch import nn
from training import steps

first, second = nn.Linear(512, 512).to("cuda:0"), nn.Linear(512, 512).to("cuda:1")
received = {}
with torch.no_grad():
    for step in steps():
        sent = first(torch.randn(32, 512, device="cuda:0")).relu()
        received[step] = sent.to("cuda:1")  # site: leak
        second(received[step]).relu()
