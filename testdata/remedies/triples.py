# SPDX-License-Identifier: Apache-2.0
"""Tunes the last half of an encoder on triples: each step calls it three times, and its first half is frozen."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Encoder(nn.Module):
    def __init__(self, r, width=256, layers=6, words=6000):
        super().__init__()
        self.r = r
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(remedy.Block(width) for _ in range(layers))
        self.pool = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        for p in [*self.embed.parameters(), *self.blocks[:layers // 2].parameters()]:
            p.requires_grad_(False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = self.r.call(block, x)
        return F.normalize(self.pool(x.mean(1)), dim=1)


def job(r):
    model = r.model(Encoder(r))
    optimizer = r.adam(p for p in model.parameters() if p.requires_grad)
    for length in (96, 128, 112, 128):
        anchor, same, other = (model(remedy.tokens(r.batch(10), n)) for n in (length, 128, length))
        loss = F.triplet_margin_loss(anchor, same, other) + 0.01 * (anchor @ same.t()).logsumexp(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


remedy.run(job)
