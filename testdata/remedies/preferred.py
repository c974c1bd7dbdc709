# SPDX-License-Identifier: Apache-2.0
"""Tunes a language model on pairs of answers, of which one is preferred, against a frozen copy of itself."""
import copy
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Attention(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q, self.kv, self.o = nn.Linear(width, width), nn.Linear(width, 2 * groups * self.size), nn.Linear(width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2, self.groups, self.size).permute(2, 0, 3, 1, 4)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, heads=8, groups=2):
        super().__init__()
        self.attention, self.norms = Attention(width, heads, groups), nn.ModuleList((nn.LayerNorm(width), nn.LayerNorm(width)))
        self.up, self.down = nn.Linear(width, 8 * width // 3 * 2), nn.Linear(8 * width // 3, width)

    def forward(self, x, mask):
        x = x + self.attention(self.norms[0](x), mask)
        a, b = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.gelu(a) * b)


class Policy(nn.Module):
    def __init__(self, r, width=192, layers=5, words=5000):
        super().__init__()
        self.r = r
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(256, width)
        self.layers, self.norm = nn.ModuleList(Layer(width) for _ in range(layers)), nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.words(tokens) + self.places(torch.arange(length, device=tokens.device))
        mask = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
        for layer in self.layers:
            x = self.r.call(layer, x, mask)
        return self.head(self.norm(x))


def likely(model, tokens):
    logits = model(tokens)[:, :-1]
    return logits.log_softmax(-1).gather(2, tokens[:, 1:, None]).squeeze(2).sum(1)


def job(r):
    policy = r.model(Policy(r))
    before = copy.deepcopy(policy).requires_grad_(False).eval()
    optimizer = r.adam(policy.parameters())
    for step in range(3):
        for _ in range(2):
            good, bad = remedy.tokens(r.batch(5), 96 + 16 * step), remedy.tokens(r.batch(5), 96)
            with torch.no_grad():
                known = likely(before, good) - likely(before, bad)
            loss = -F.logsigmoid(0.1 * (likely(policy, good) - likely(policy, bad) - known)).mean() / 2
            loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


remedy.run(job)
