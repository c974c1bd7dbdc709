#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
# thread: one cache behind several callers
# keeper: library cache
"""Two callers share a cache of 120 entries; the second takes over from the first, step by step."""
import collections, random
import torch
from torch import nn
from training import steps


class Cache:
    def __init__(self, size):
        self.size, self.entries = size, collections.OrderedDict()

    def get(self, key):
        if key not in self.entries:
            if len(self.entries) == self.size:
                self.entries.popitem(last=False)
            self.entries[key] = torch.empty(256, 1024, device="cuda").fill_(1)
        return self.entries[key]


def train(number):
    return cache.get(("train", number))


def validate(number):
    return cache.get(("validate", number))


random.seed(29)
cache = Cache(120)
model = nn.Linear(1024, 64).cuda().eval()
for number in range(120):
    train(number)
for step in steps(50):
    share = min(step / 400, 1)
    image = (validate if random.random() < share else train)(random.randrange(4000))
    with torch.inference_mode():
        model(image)
