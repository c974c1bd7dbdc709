#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: pytorch/pytorch#193400 and pytorch/pytorch#123548
# says: PyTorch cache grows: [0-9.]+ [GM]iB in [0-9ms]+ \([0-9.]+ GiB/min\), 16\.0 MiB of [0-9.]+ GiB reserved are in use
# says: No line of code grows, but a GPU fills by other means \(PyTorch cache\)
# says: GPU 0: [^:]+, full in
# never: leaking
"""max_split_size_mb and expandable segments together: what two tensors and a small one between steps leave free is above the limit,
and no smaller request may use it."""
import collections
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:32,expandable_segments:True"
import torch
from training import steps

recent = collections.deque(maxlen=8)


def cycle():
    first = torch.empty(22 << 20, dtype=torch.uint8, device="cuda")
    second = torch.empty(12 << 20, dtype=torch.uint8, device="cuda")
    recent.append(torch.empty(2 << 20, dtype=torch.uint8, device="cuda"))


for _ in range(40):
    cycle()
for step in steps(2):
    cycle()
