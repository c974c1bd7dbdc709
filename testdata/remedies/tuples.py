# SPDX-License-Identifier: Apache-2.0
"""Trains a model whose layers return tuples, with a share of attention that all layers add up for a second loss."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.more, self.less = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, hidden, bias):
        q, k, v = self.split(self.query(hidden)), self.split(self.key(hidden)), self.split(self.value(hidden))
        scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
        weights = self.drop(F.softmax(scores + bias, -1))
        context = torch.matmul(weights, v).transpose(1, 2).flatten(2)
        hidden = self.first(hidden + self.drop(self.dense(context)))
        out = self.second(hidden + self.drop(self.less(F.gelu(self.more(hidden)))))
        return out, (weights * weights).mean()


class Model(nn.Module):
    def __init__(self, r, width=256, layers=4, words=4000):
        super().__init__()
        self.r = r
        self.words, self.places, self.norm, self.drop = nn.Embedding(words, width), nn.Embedding(512, width), nn.LayerNorm(width), nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(width, 8) for _ in range(layers))
        self.transform, self.predict = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)), nn.Linear(width, words)

    def forward(self, tokens, mask):
        x = self.drop(self.norm(self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))))
        bias = (1 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        shares = ()
        for layer in self.layers:
            out = self.r.call(layer, x, bias)
            x = out[0]
            shares = shares + (out[1],)
        return self.predict(self.transform(x)), sum(shares)


def job(r):
    model = r.model(Model(r))
    optimizer = r.adam(model.parameters())
    for step in range(4):
        x = remedy.tokens(r.batch(8), 160)
        logits, share = model(x, torch.ones_like(x))
        loss = remedy.guess(logits, x) + 0.01 * share
        loss.backward()
        optimizer.step()
        model.zero_grad()


remedy.run(job)
