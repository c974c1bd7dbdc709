# SPDX-License-Identifier: Apache-2.0
"""Trains a transformer that removes noise from patches of pictures, whose norms know the time, and keeps a moving average of its weights, which makes a sample now and then."""
import copy
import math
import torch
from torch import nn
from torch.nn import functional as F
import remedy


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm_q, self.norm_k = nn.LayerNorm(width // heads), nn.LayerNorm(width // heads)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(self.norm_q(q), self.norm_k(k), v)
        return self.out(x.transpose(1, 2).reshape(b, n, c))


class Patches(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.attend = Attention(width, heads)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.adapt = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adapt(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attend(modulate(self.norm1(x), shift1, scale1))
        return x + gate2.unsqueeze(1) * self.feed(modulate(self.norm2(x), shift2, scale2))


class Denoiser(nn.Module):
    def __init__(self, r, width=240, layers=5, size=32, patch=2, classes=10):
        super().__init__()
        self.r, self.patch, self.width = r, patch, width
        self.enter = nn.Conv2d(4, width, patch, patch)
        self.register_buffer("places", torch.zeros(1, (size // patch) ** 2, width))
        self.time, self.label = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)), nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList(Patches(width, 6) for _ in range(layers))
        self.norm, self.adapt, self.leave = nn.LayerNorm(width, elementwise_affine=False), nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width)), nn.Linear(width, 8 * patch ** 2)

    def waves(self, t):
        half = self.width // 2
        rates = torch.exp(-math.log(10000) * torch.arange(half, device=t.device) / half)
        angles = t[:, None].float() * rates[None]
        return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1).to(self.enter.weight.dtype)

    def forward(self, x, t, y):
        x = self.enter(x).flatten(2).transpose(1, 2) + self.places
        c = self.time(self.waves(t)) + self.label(y)
        for block in self.blocks:
            x = self.r.call(block, x, c)
        shift, scale = self.adapt(c).chunk(2, dim=1)
        return self.leave(modulate(self.norm(x), shift, scale))


@torch.no_grad()
def follow(average, model):
    for slow, fast in zip(average.parameters(), model.parameters()):
        slow.mul_(0.999).add_(fast, alpha=0.001)


def job(r):
    model = r.model(Denoiser(r))
    average = copy.deepcopy(model).requires_grad_(False).eval()
    optimizer = r.adam(model.parameters())
    for step in range(4):
        clean, t, y = r.input(r.batch(6), 4, 32, 32), torch.zeros(r.batch(6), dtype=torch.long, device="cuda"), torch.zeros(r.batch(6), dtype=torch.long, device="cuda")
        noise = torch.randn_like(clean)
        level = torch.linspace(0, 1, 1000, device="cuda")[t].view(-1, 1, 1, 1).to(clean.dtype)
        out = model(level.sqrt() * clean + (1 - level).sqrt() * noise, t, y)
        wanted = F.unfold(noise.float(), 2, stride=2).transpose(1, 2).to(clean.dtype)
        guess, spread = out.chunk(2, dim=2)
        loss = F.mse_loss(guess, wanted) + 1e-3 * (spread.exp() - spread).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(average, model)
        if step == 2:
            with torch.no_grad():
                x = r.input(4, 4, 32, 32)
                for _ in range(2):
                    F.fold(average(x, t[:4], y[:4])[:, :, :16].float().transpose(1, 2), (32, 32), 2, stride=2)


remedy.run(job)
