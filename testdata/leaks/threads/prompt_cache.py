#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: vllm-project/vllm, caches by a key that never comes again
# keeper: library cache
# holder: cache.entries[*]
"""A cache by prompt, whose text includes the time: no prompt comes twice, and nothing is evicted."""
import torch
from torch import nn
from training import steps


class Cache:
    def __init__(self):
        self.entries = {}

    def get(self, prompt, make):
        if prompt not in self.entries:
            self.entries[prompt] = make()
        return self.entries[prompt]


@torch.inference_mode()
def prefill():
    return model(torch.randn(640, 512, device="cuda")).half()  # site: leak


cache = Cache()
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda().eval()
for step in steps(30):
    prompt = "It is step %d. Hello!" % (step // 10 * 10)
    cache.get(prompt, prefill)
    with torch.inference_mode():
        for _ in range(4):
            model(torch.randn(32, 512, device="cuda"))
