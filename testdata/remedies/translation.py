# SPDX-License-Identifier: Apache-2.0
"""Trains an encoder and a decoder with cross attention, on sentences that are as long as the longest of their batch."""
import torch
from torch import nn
import remedy

LENGTHS = ((40, 56), (75, 64), (96, 112), (33, 24), (88, 96), (64, 72))


class Decoding(nn.Module):
    def __init__(self, width, heads=6):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.cross = nn.MultiheadAttention(width, heads, batch_first=True), nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x, memory):
        n = self.norms[0](x)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device, dtype=x.dtype).triu(1)
        x = x + self.own(n, n, n, attn_mask=mask, need_weights=False)[0]
        x = x + self.cross(self.norms[1](x), memory, memory, need_weights=False)[0]
        return x + self.mlp(self.norms[2](x))


class Translation(nn.Module):
    def __init__(self, r, width=192, layers=4, words=6000):
        super().__init__()
        self.r = r
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder = nn.ModuleList(remedy.Block(width, heads=6, dropout=0.1) for _ in range(layers))
        self.decoder = nn.ModuleList(Decoding(width) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def forward(self, source, target):
        memory = self.source(source)
        for block in self.encoder:
            memory = block(memory)
        x = self.target(target)
        for block in self.decoder:
            x = self.r.call(block, x, memory)
        return self.head(x)


def job(r):
    model = r.model(Translation(r))
    optimizer = r.adam(model.parameters())
    for source, target in LENGTHS:
        x, y = remedy.tokens(r.batch(12), source), remedy.tokens(r.batch(12), target)
        loss = remedy.guess(model(x, y), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


remedy.run(job)
