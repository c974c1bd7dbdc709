# SPDX-License-Identifier: Apache-2.0
"""Trains PyTorch's LSTM on sequences, between two layers of the user's, with two learning rates and a gradient of the input."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Front(nn.Module):
    def __init__(self, inside, width):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(inside, 2 * width), nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x):
        value, gate = self.a(x).chunk(2, -1)
        return self.norm(self.b(torch.relu(value) * torch.sigmoid(gate)))


class Pool(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.score, self.out = nn.Linear(width, heads), nn.Linear(heads * width, width)

    def forward(self, x):
        return self.out((self.score(x).softmax(1).transpose(1, 2) @ x).flatten(1))


class Model(nn.Module):
    def __init__(self, r, width=192):
        super().__init__()
        self.r = r
        self.fronts = nn.ModuleList((Front(64, width), Front(width, width)))
        self.lstm, self.pool, self.out = nn.LSTM(width, width, 2, batch_first=True, dropout=0.1), Pool(width), nn.Linear(width, 30)

    def forward(self, x):
        for front in self.fronts:
            x = self.r.call(front, x)
        x, _ = self.lstm(x)
        return self.out(self.pool(x))


def job(r):
    model = r.model(Model(r))
    slow = list(model.lstm.parameters())
    fast = [p for n, p in model.named_parameters() if not n.startswith("lstm")]
    optimizers = r.adam(slow), r.adam(fast)
    for _ in range(4):
        x = r.input(r.batch(20), 100, 64).requires_grad_()
        loss = F.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.long, device="cuda"))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


remedy.run(job)
