#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: paged caches that are compacted
# keeper: library cache
# holder: pages.live[*]
"""Pages of a cache are copied together every half second, finished sequences excepted; those of
cancelled requests are never marked as finished."""
import random
import torch
from torch import nn
from training import steps


class Pages:
    def __init__(self):
        self.live = {}

    def compact(self):
        self.live = {key: page.clone() for key, page in self.live.items()}  # site: leak


random.seed(37)
pages = Pages()
model = nn.Linear(512, 512).cuda().eval()
for step in steps(40):
    with torch.inference_mode():
        pages.live[step] = model(torch.randn(512, 512, device="cuda"))  # site: leak
    if step >= 12 and step % 5:
        del pages.live[step - 12 if step - 12 in pages.live else step]
    if step % 20 == 19:
        pages.compact()
