# SPDX-License-Identifier: Apache-2.0
"""Trains a language model whose loss is computed in chunks, each with a backward pass of its own down to the last layer's output."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Block(nn.Module):
    def __init__(self, width, heads=8):
        super().__init__()
        self.heads, self.ln1, self.ln2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj, self.fc, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, 2))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.proj(F.relu(self.fc(self.ln2(x))).square())


class Model(nn.Module):
    def __init__(self, r, width=256, layers=5, words=16000):
        super().__init__()
        self.r = r
        self.wte, self.blocks, self.ln = nn.Embedding(words, width), nn.ModuleList(Block(width) for _ in range(layers)), nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens)
        for block in self.blocks:
            x = self.r.call(block, x)
        return self.ln(x)


def job(r):
    model = r.model(Model(r))
    optimizer = r.adam(model.parameters())
    for _ in range(3):
        for _ in range(2):
            tokens = remedy.tokens(r.batch(6), 256)
            x = model(tokens)
            stop = x.detach().requires_grad_()
            for part, target in zip(stop.chunk(4, 1), tokens.chunk(4, 1)):
                (remedy.guess(model.head(part), target) / 8).backward()
            x.backward(stop.grad)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


remedy.run(job)
