# SPDX-License-Identifier: Apache-2.0
"""Trains a recurrent network step by step through time, on sequences of two lengths of batch."""
import torch
from torch import nn
import remedy


class Recurrent(nn.Module):
    def __init__(self, r):
        super().__init__()
        self.r, self.embed, self.cell, self.head = r, nn.Embedding(2000, 256), nn.GRUCell(256, 512), nn.Linear(512, 2000)

    def forward(self, tokens):
        x, state, out = self.embed(tokens), None, []
        for i in range(tokens.shape[1]):
            state = self.cell(x[:, i], state)
            out.append(self.head(state))
        return torch.stack(out, 1)


def job(r):
    model = r.model(Recurrent(r))
    optimizer = r.adam(model.parameters())
    for step in range(6):
        x = remedy.tokens(r.batch(48 if step % 3 else 32), 40)
        loss = remedy.guess(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


remedy.run(job)
