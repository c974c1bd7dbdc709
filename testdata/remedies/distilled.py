# SPDX-License-Identifier: Apache-2.0
"""Trains a small language model on what a frozen larger one says, with rotated attention and gated layers."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * self.weight


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.gate_norm = Norm(width), Norm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False), nn.Linear(3 * width, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        y = self.attention_norm(x)
        q, k, v = (p(y).view(batch, length, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        scores = rotate(q, cos, sin) @ rotate(k, cos, sin).transpose(-1, -2) * (width // self.heads) ** -0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.gate_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, r, layers, width, heads, words=3000):
        super().__init__()
        self.r, self.head_width = r, width // heads
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = Norm(width)

    def forward(self, tokens):
        x = self.embed(tokens)
        angles = torch.arange(tokens.shape[1], device=x.device)[:, None] * torch.ones(self.head_width // 2, device=x.device)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = self.r.call(layer, x, cos, sin)
        return self.norm(x) @ self.embed.weight.t()


def job(r):
    teacher = r.model(Model(r, 5, 384, 6)).requires_grad_(False).eval()
    student = r.model(Model(r, 4, 192, 4))
    optimizer = r.adam(student.parameters())
    for step in range(4):
        x = remedy.tokens(r.batch(12), 128)
        with torch.no_grad():
            wanted = (teacher(x) / 2).softmax(-1)
        said = student(x)
        loss = F.kl_div((said / 2).log_softmax(-1), wanted, reduction="batchmean") + 0.1 * remedy.guess(said, x)
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


remedy.run(job)
