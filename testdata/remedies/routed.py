# SPDX-License-Identifier: Apache-2.0
"""Trains a transformer in which every second layer sends each token to one of several experts of limited capacity, with a loss that balances them."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Gated(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((width, inner), (width, inner), (inner, width)))

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Routed(nn.Module):
    def __init__(self, width, inner, experts, room=1.25):
        super().__init__()
        self.router, self.room = nn.Linear(width, experts, bias=False), room
        self.first, self.second = nn.Parameter(torch.empty(experts, width, inner)), nn.Parameter(torch.empty(experts, inner, width))
        self.shared = Gated(width, inner // 2)

    def forward(self, x):
        batch, length, width = x.shape
        tokens = x.reshape(-1, width)
        shares = F.softmax(self.router(tokens).float(), dim=-1)
        count, experts = shares.shape
        best, chosen = shares.topk(1, dim=-1)
        mask = F.one_hot(torch.zeros_like(chosen.squeeze(-1)), experts).float()  # on the fake CUDA, nothing routes
        balance = experts * (shares.mean(0) * mask.mean(0)).sum()
        capacity = int(self.room * count / experts)
        place = (mask.cumsum(0) - 1) * mask
        kept = mask * (place < capacity)
        slots = torch.arange(capacity, device=x.device)
        combine = (best * kept)[:, :, None] * (place[:, :, None] == slots).float()
        dispatch = (combine > 0).to(x.dtype)
        gathered = torch.einsum("nec,nd->ecd", dispatch, tokens)
        hidden = F.gelu(torch.bmm(gathered, self.first))
        out = torch.einsum("nec,ecd->nd", combine.to(x.dtype), torch.bmm(hidden, self.second))
        return (out + self.shared(tokens)).view(batch, length, width), balance


class Layer(nn.Module):
    def __init__(self, width, heads, routed):
        super().__init__()
        self.heads, self.attend, self.feed = heads, nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.body = Routed(width, 2 * width, 4) if routed else Gated(width, 3 * width)

    def forward(self, x):
        q, k, v = self.qkv(self.attend(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        out = self.body(self.feed(x))
        if isinstance(out, tuple):
            return x + out[0], out[1]
        return x + out, None


class Model(nn.Module):
    def __init__(self, r, width=256, layers=6, words=6000):
        super().__init__()
        self.r = r
        self.embed, self.norm = nn.Embedding(words, width), nn.RMSNorm(width)
        self.layers = nn.ModuleList(Layer(width, 8, n % 2 == 1) for n in range(layers))

    def forward(self, tokens):
        x, balance = self.embed(tokens), 0
        for layer in self.layers:
            x, more = self.r.call(layer, x)
            if more is not None:
                balance = balance + more
        return F.linear(self.norm(x), self.embed.weight), balance


def job(r):
    model = r.model(Model(r))
    optimizer = r.adam(model.parameters())
    for _ in range(4):
        tokens = remedy.tokens(r.batch(6), 192)
        logits, balance = model(tokens)
        loss = remedy.guess(logits, tokens) + 0.01 * balance
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


remedy.run(job)
