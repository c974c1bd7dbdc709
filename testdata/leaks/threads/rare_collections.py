#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: vllm-project/vllm#28726
# keeper: cycles
"""With raised thresholds, the collector runs every few seconds, after an irregular number of steps."""
import gc, random
import torch
from torch import nn
from training import steps


class Node:
    def __init__(self, parent, tensor):
        self.parent, self.children, self.tensor = parent, [], tensor
        if parent:
            parent.children.append(self)


gc.set_threshold(60000, 2, 2)
random.seed(5)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda().eval()
for step in steps(50):
    root = Node(None, torch.randn(512, 256, device="cuda"))
    with torch.no_grad():
        leaf = Node(root, model(root.tensor))
    notes = [[root, i] for i in range(random.randrange(200, 400))]
    notes.append(notes)
