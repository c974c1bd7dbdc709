# SPDX-License-Identifier: Apache-2.0
"""Trains an encoder of pictures by pairs of views, against a queue of what a slowly following copy of it made of earlier ones."""
import copy
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Basic(nn.Module):
    def __init__(self, before, after, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(after, after // 4, 1), nn.ReLU(inplace=True), nn.Conv2d(after // 4, after, 1), nn.Sigmoid())
        self.short = nn.Sequential(nn.AvgPool2d(stride), nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after)) if stride > 1 else None

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out = out * self.squeeze(out)
        if self.short is not None:
            identity = self.short(x)
        out += identity
        return self.relu(out)


class Encoder(nn.Module):
    def __init__(self, r, width=32, out=128):
        super().__init__()
        self.r = r
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.blocks = nn.ModuleList((Basic(width, width), Basic(width, 2 * width, 2), Basic(2 * width, 2 * width), Basic(2 * width, 4 * width, 2), Basic(4 * width, 4 * width)))
        self.head = nn.Sequential(nn.Linear(4 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, out))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = self.r.call(block, x)
        return F.normalize(self.head(x.mean((2, 3))), dim=1)


def job(r):
    query = r.model(Encoder(r))
    key = copy.deepcopy(query).requires_grad_(False)
    queue = F.normalize(r.input(128, 8192), dim=0)
    optimizer = r.momentum(query.parameters())
    at = 0
    for _ in range(5):
        one, two = r.input(r.batch(32), 3, 48, 48), r.input(r.batch(32), 3, 48, 48)
        q = query(one)
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), query.parameters()):
                slow.data = slow.data * 0.999 + fast.data * 0.001
            order = torch.arange(len(two) - 1, -1, -1, device=two.device)
            k = key(two[order])[order]
        same, other = torch.einsum("nc,nc->n", q, k).unsqueeze(-1), torch.einsum("nc,ck->nk", q, queue.clone())
        logits = torch.cat([same, other], dim=1) / 0.07
        loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long, device=q.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue[:, at:at + len(k)] = k.T
        at = (at + len(k)) % queue.shape[1]


remedy.run(job)
