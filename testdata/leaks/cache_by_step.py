#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
"""Caches attention masks by length, but the key includes the step, so the cache never hits."""
import random
import torch
from torch.nn.functional import scaled_dot_product_attention
from training import steps

masks = {}


def mask(length, step):
    key = length, step
    if key not in masks:
        masks[key] = torch.ones(length, length, device="cuda")  # site: leak
    return masks[key]


random.seed(1)
with torch.no_grad():
    for step in steps():
        length = random.choice((64, 96, 128, 192))
        q = torch.randn(8, 4, length, 32, device="cuda")
        scaled_dot_product_attention(q, q, q, attn_mask=mask(length, step))
