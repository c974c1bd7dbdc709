# SPDX-License-Identifier: Apache-2.0
"""Trains a model of sequences whose layers keep a state and update it at each position, in a loop of Python."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Scan(nn.Module):
    def __init__(self, width, states=8):
        super().__init__()
        self.norm, self.enter, self.leave = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.near = nn.Conv1d(width, width, 3, padding=2, groups=width)
        self.select, self.decay = nn.Linear(width, 2 * states + 1), nn.Parameter(torch.zeros(width, states))

    def forward(self, x):
        batch, length, width = x.shape
        y, gate = self.enter(self.norm(x)).chunk(2, -1)
        y = F.silu(self.near(y.transpose(1, 2))[:, :, :length].transpose(1, 2))
        read, write, pace = self.select(y).split((self.decay.shape[1], self.decay.shape[1], 1), -1)
        pace, decay = F.softplus(pace), -self.decay.exp()
        state, said = torch.zeros(batch, width, self.decay.shape[1], dtype=x.dtype, device=x.device), []
        for n in range(length):
            state = (pace[:, n, :, None] * decay).exp() * state + (pace[:, n] * y[:, n])[:, :, None] * write[:, n, None]
            said.append((state * read[:, n, None]).sum(-1))
        return x + self.leave(torch.stack(said, 1) * F.silu(gate))


class Model(nn.Module):
    def __init__(self, r, width=128, layers=4, words=2000):
        super().__init__()
        self.r = r
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Scan(width) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = self.r.call(layer, x)
        return self.head(x)


def job(r):
    model = r.model(Model(r))
    optimizer = r.momentum(model.parameters())
    for _ in range(3):
        x = remedy.tokens(r.batch(24), 32)
        loss = remedy.guess(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


remedy.run(job)
