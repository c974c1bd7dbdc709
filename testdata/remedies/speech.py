# SPDX-License-Identifier: Apache-2.0
"""Trains a model of speech: convolutions over time between half layers and attention, on batches of different length."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Half(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down, self.drop = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.down(self.drop(F.silu(self.up(self.norm(x))))))


class Over(nn.Module):
    def __init__(self, width, kernel=15):
        super().__init__()
        self.norm, self.batch_norm = nn.LayerNorm(width), nn.BatchNorm1d(width)
        self.into, self.depth, self.out = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width), nn.Conv1d(width, width, 1)

    def forward(self, x):
        y = F.glu(self.into(self.norm(x).transpose(1, 2)), 1)
        return self.out(F.silu(self.batch_norm(self.depth(y)))).transpose(1, 2)


class Layer(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.before, self.after, self.over = Half(width), Half(width), Over(width)
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)

    def forward(self, x, absent):
        x = x + 0.5 * self.before(x)
        y = self.norm(x)
        x = x + self.attention(y, y, y, key_padding_mask=absent, need_weights=False)[0]
        x = x + self.over(x)
        return self.last(x + 0.5 * self.after(x))


class Model(nn.Module):
    def __init__(self, r, width=144, layers=4, letters=200):
        super().__init__()
        self.r = r
        self.shorter = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU())
        self.enter = nn.Linear(32 * 20, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.letters = nn.Linear(width, letters)

    def forward(self, sound):
        x = self.shorter(sound[:, None]).transpose(1, 2).flatten(2)
        x = self.enter(x)
        absent = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        for layer in self.layers:
            x = self.r.call(layer, x, absent)
        return self.letters(x).log_softmax(-1)


def job(r):
    model = r.model(Model(r))
    optimizer = r.adam(model.parameters())
    for length in (480, 640, 560, 640):
        said = model(r.input(r.batch(10), length, 80))
        loss = F.nll_loss(said.flatten(0, 1), torch.zeros(said.shape[0] * said.shape[1], dtype=torch.long, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()


remedy.run(job)
