# SPDX-License-Identifier: Apache-2.0
"""Trains with activation checkpointing already, so that state and gradients weigh more."""
import torch
from torch.utils.checkpoint import checkpoint
import remedy


class Model(remedy.Language):
    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


def job(r):
    model = r.model(Model(r, 8, 384))
    optimizer = r.adam(model.parameters())
    for _ in range(5):
        x = remedy.tokens(4, 128)
        loss = remedy.guess(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


remedy.run(job)
