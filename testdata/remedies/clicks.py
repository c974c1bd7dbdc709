# SPDX-License-Identifier: Apache-2.0
"""Trains a recommender: bags of embeddings, layers that cross them, and an optimizer for each of two groups."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Cross(nn.Module):
    def __init__(self, width, rank=64):
        super().__init__()
        self.narrow, self.wide = nn.Linear(width, rank, bias=False), nn.Linear(rank, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, first, x):
        return self.norm(first * self.wide(torch.tanh(self.narrow(x))) + x)


class Ranker(nn.Module):
    def __init__(self, r, features=24, rows=4000, width=32):
        super().__init__()
        self.r = r
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(features))
        self.dense = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        self.crosses = nn.ModuleList(Cross((features + 1) * width) for _ in range(4))
        pairs = (features + 1) * features // 2
        self.deep = nn.Sequential(nn.Linear((features + 1) * width + pairs, 512), nn.ReLU(), nn.Dropout(0.3), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 1))
        self.register_buffer("upper", torch.ones(features + 1, features + 1).triu(1).nonzero().t().contiguous(), persistent=False)

    def forward(self, dense, ids):
        told = [table(ids[:, n]).mean(1) for n, table in enumerate(self.tables)]
        x = torch.stack([self.dense(dense), *told], 1)
        both = (x @ x.transpose(1, 2))[:, self.upper[0], self.upper[1]]
        first = x = x.flatten(1)
        for cross in self.crosses:
            x = self.r.call(cross, first, x)
        return self.deep(torch.cat((x, both), 1)).squeeze(1)


def job(r):
    model = r.model(Ranker(r))
    tables = list(model.tables.parameters())
    others = [p for name, p in model.named_parameters() if not name.startswith("tables")]
    optimizers = r.momentum(tables), r.adam(others)
    for _ in range(5):
        batch = r.batch(2048)
        ids = torch.zeros(batch, len(model.tables), 3, dtype=torch.long, device="cuda")
        said = model(r.input(batch, 13), ids)
        loss = F.binary_cross_entropy_with_logits(said, torch.zeros_like(said))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()


remedy.run(job)
