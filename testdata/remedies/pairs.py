# SPDX-License-Identifier: Apache-2.0
"""Trains two towers, of pictures and of texts, on which of them belong together, with autocast and a scaler of gradients."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Bottleneck(nn.Module):
    def __init__(self, width, squeeze=4):
        super().__init__()
        small = width // squeeze
        self.a, self.b, self.c = nn.Conv2d(width, small, 1, bias=False), nn.Conv2d(small, small, 3, padding=1, bias=False), nn.Conv2d(small, width, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (small, small, width))

    def forward(self, x):
        y = F.relu(self.norms[0](self.a(x)), inplace=True)
        y = F.relu(self.norms[1](self.b(y)), inplace=True)
        return F.relu(self.norms[2](self.c(y)).add_(x))


class Pictures(nn.Module):
    def __init__(self, r, out):
        super().__init__()
        self.r = r
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 5, 2, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2))
        self.blocks = nn.ModuleList(Bottleneck(64) for _ in range(5))
        self.out = nn.Linear(64, out)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = self.r.call(block, x)
        return F.normalize(self.out(x.mean((2, 3))), dim=1)


class Texts(nn.Module):
    def __init__(self, r, out, width=192):
        super().__init__()
        self.embed, self.place = nn.Embedding(6000, width), nn.Parameter(torch.zeros(48, width))
        self.blocks = nn.ModuleList(remedy.Block(width, 6) for _ in range(2))
        self.out = nn.Linear(width, out)

    def forward(self, x):
        x = self.embed(x) + self.place
        for block in self.blocks:
            x = block(x)
        return F.normalize(self.out(x[:, 0]), dim=1)


def job(r):
    towers = r.model(nn.ModuleDict({"pictures": Pictures(r, 128), "texts": Texts(r, 128)}))
    heat = nn.Parameter(torch.ones((), device="cuda"))
    optimizer = r.adam([*towers.parameters(), heat])
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    for _ in range(5):
        batch = r.batch(40)
        with torch.autocast("cuda", torch.bfloat16):
            logits = towers["pictures"](r.input(batch, 3, 96, 96)) @ towers["texts"](remedy.tokens(batch, 48)).t() * heat.exp()
            right = torch.arange(batch, device="cuda")
            loss = (F.cross_entropy(logits, right) + F.cross_entropy(logits.t(), right)) / 2
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


remedy.run(job)
