#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: lru_cache on methods that get tensors
# keeper: library cache
# holder: Encoder.embed
"""A method with functools.lru_cache and without a limit gets tensors: each is a key of its own."""
import functools
import torch
from torch import nn
from training import steps


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(256, 512)

    @functools.lru_cache(maxsize=None)
    def embed(self, tokens):
        return self.layer(tokens).relu()  # site: leak


encoder = Encoder().cuda()
for step in steps(50):
    with torch.inference_mode():
        encoder.embed(torch.randn(128, 256, device="cuda")).sum()  # site: leak
