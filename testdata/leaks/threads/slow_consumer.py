#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: ray-project/ray, results that pile up in an object queue
# keeper: queue
# holder: results.queue[*]
"""Inference puts its results into a queue without a limit; the thread that writes them is slower."""
import queue, threading, time
import torch
from torch import nn
from training import steps

results = queue.Queue()


def write():
    while True:
        results.get().sum().item()
        time.sleep(0.04)


threading.Thread(target=write, daemon=True).start()
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1024)).cuda().eval()
for step in steps(50):
    with torch.inference_mode():
        results.put(model(torch.randn(384, 512, device="cuda")))  # site: leak
