#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
"""Serves with one CUDA graph per batch size, captured on demand; each graph keeps its memory."""
import random
import torch
from torch import nn
from training import steps

model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
graphs = {}


@torch.no_grad()
def capture(size):
    inputs = torch.zeros(size, 512, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = model(inputs)
    return graph, inputs, outputs


random.seed(9)
for step in steps():
    size = 1 << min(random.randrange(9), step // 40)
    if size not in graphs:
        graphs[size] = capture(size)
    graph, inputs, outputs = graphs[size]
    inputs.copy_(torch.randn(size, 512, device="cuda"))
    graph.replay()
    answer = outputs.clone()
