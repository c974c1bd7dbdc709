#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# attach: early
"""Creates a table's rows when a word first appears: common words early, rare ones late."""
import random
import torch
from torch import nn
from training import steps

WORDS = 400
rows, head = {}, nn.Linear(4096, 10).cuda()
random.seed(10)
weights = [1 / (1 + n) for n in range(WORDS)]
with torch.no_grad():
    for step in steps():
        sentence = random.choices(range(WORDS), weights, k=24)
        for word in sentence:
            if word not in rows:
                rows[word] = torch.zeros(8, 4096, device="cuda")
        head(torch.stack([rows[word] for word in sentence])).argmax(dim=-1)
