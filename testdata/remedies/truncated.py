# SPDX-License-Identifier: Apache-2.0
"""Trains a stack of recurrent cells on long texts, a piece at a time: the state goes on, the gradient stops, and norms and dropped units are the cells' own."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Cell(nn.Module):
    """An LSTM's cell with norms, and the same dropped units through a piece."""

    def __init__(self, width):
        super().__init__()
        self.x, self.h = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width, bias=False)
        self.norm_x, self.norm_h, self.norm_c = nn.LayerNorm(4 * width), nn.LayerNorm(4 * width), nn.LayerNorm(width)

    def step(self, x, h, c):
        i, f, g, o = (self.norm_x(self.x(x)) + self.norm_h(self.h(h))).chunk(4, dim=-1)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(self.norm_c(c)), c

    def forward(self, xs, state):
        h, c = state
        mask = torch.empty_like(h).bernoulli_(0.8) / 0.8
        out = []
        for x in xs.unbind(0):
            h, c = self.step(x, h * mask, c)
            out.append(h)
        return torch.stack(out), (h, c)


class Reader(nn.Module):
    def __init__(self, r, letters=512, width=256, layers=3):
        super().__init__()
        self.r = r
        self.embed, self.cells, self.head = nn.Embedding(letters, width), nn.ModuleList(Cell(width) for _ in range(layers)), nn.Linear(width, letters)

    def forward(self, text, states):
        x, after = self.embed(text), []
        for cell, state in zip(self.cells, states):
            out, state = self.r.call(cell, x, state)
            x = x + out
            after.append(state)
        return self.head(x), after


def job(r):
    model = r.model(Reader(r))
    optimizer = r.adam(model.parameters())
    batch, pieces, length = r.batch(32), 3, 20
    for _ in range(2):
        text = remedy.tokens(pieces * length + 1, batch)
        states = [(r.input(batch, 256), r.input(batch, 256)) for _ in model.cells]
        for n in range(pieces):
            x, y = text[n * length:(n + 1) * length], text[n * length + 1:(n + 1) * length + 1]
            states = [(h.detach(), c.detach()) for h, c in states]
            logits, states = model(x, states)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten()) + 2.0 * logits.pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()


remedy.run(job)
