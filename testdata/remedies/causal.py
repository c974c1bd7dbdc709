# SPDX-License-Identifier: Apache-2.0
"""Trains a language model in bfloat16 whose norms and loss compute in four bytes, four batches for each step."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


class DecoderLayer(nn.Module):
    def __init__(self, width, heads, kept):
        super().__init__()
        self.size, self.heads, self.kept = width // heads, heads, kept
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(width, kept * self.size, bias=False) for _ in range(2))
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False), nn.Linear(3 * width, width, bias=False)
        self.input_norm, self.post_norm = RMSNorm(width), RMSNorm(width)

    def attend(self, x):
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.kept, self.size).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.kept, self.size).transpose(1, 2)
        k, v = (t[:, :, None].expand(-1, -1, self.heads // self.kept, -1, -1).reshape(batch, self.heads, length, self.size) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).contiguous().view(batch, length, -1))

    def forward(self, hidden_states):
        residual = hidden_states
        hidden_states = self.attend(self.input_norm(hidden_states))
        hidden_states = residual + hidden_states
        residual = hidden_states
        hidden_states = self.post_norm(hidden_states)
        hidden_states = self.down_proj(F.silu(self.gate_proj(hidden_states)) * self.up_proj(hidden_states))
        return residual + hidden_states


class Causal(nn.Module):
    def __init__(self, r, width=256, layers=6, words=8000):
        super().__init__()
        self.r = r
        self.embed_tokens, self.layers = nn.Embedding(words, width), nn.ModuleList(DecoderLayer(width, 8, 2) for _ in range(layers))
        self.norm, self.lm_head = RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = self.r.call(layer, x)
        logits = self.lm_head(self.norm(x)).float()
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def job(r):
    model = r.model(Causal(r).bfloat16())
    optimizer = r.adam(model.parameters())
    for _ in range(3):
        for _ in range(4):
            (model(remedy.tokens(r.batch(4), 256)) / 4).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


remedy.run(job)
