# SPDX-License-Identifier: Apache-2.0
"""Trains a segmentation network with wide convolutions at several rates, a second head, and a validation after each epoch."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Inverted(nn.Module):
    def __init__(self, before, after, stride, rate=1, grow=4):
        super().__init__()
        wide = before * grow
        self.same = stride == 1 and before == after
        self.grow = nn.Sequential(nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish(inplace=True))
        self.depth = nn.Sequential(nn.Conv2d(wide, wide, 3, stride, rate, rate, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.Hardswish(inplace=True))
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, wide // 4, 1), nn.ReLU(), nn.Conv2d(wide // 4, wide, 1), nn.Hardsigmoid())
        self.shrink = nn.Sequential(nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = self.depth(self.grow(x))
        y = self.shrink(y * self.squeeze(y))
        return x + y if self.same else y


class Net(nn.Module):
    def __init__(self, r, classes=12):
        super().__init__()
        self.r = r
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.body = nn.ModuleList((Inverted(16, 16, 1), Inverted(16, 24, 2), Inverted(24, 24, 1), Inverted(24, 40, 2), Inverted(40, 40, 1, 2), Inverted(40, 40, 1, 2)))
        self.rates = nn.ModuleList(nn.Sequential(nn.Conv2d(40, 48, 3, padding=n, dilation=n, bias=False), nn.BatchNorm2d(48), nn.ReLU()) for n in (1, 4, 8))
        self.join, self.drop = nn.Conv2d(144, 48, 1), nn.Dropout2d(0.1)
        self.head, self.early = nn.Conv2d(48, classes, 1), nn.Conv2d(24, classes, 1)

    def forward(self, x):
        size = x.shape[2:]
        x = self.stem(x)
        for n, block in enumerate(self.body):
            x = self.r.call(block, x)
            if n == 2:
                early = self.early(x)
        x = self.drop(self.join(torch.cat([rate(x) for rate in self.rates], 1)))
        return [F.interpolate(y, size=size, mode="bilinear", align_corners=False) for y in (self.head(x), early)]


def overlap(logits, target):
    p = logits.softmax(1)
    wanted = F.one_hot(target, p.shape[1]).permute(0, 3, 1, 2).to(p.dtype)
    return 1 - (2 * (p * wanted).sum((0, 2, 3)) / (p + wanted).sum((0, 2, 3)).clamp(min=1)).mean()


def job(r):
    model = r.model(Net(r))
    optimizer = r.adam(model.parameters())
    for epoch in range(2):
        model.train()
        for _ in range(3):
            x = r.input(r.batch(8), 3, 128, 128)
            target = torch.zeros(len(x), 128, 128, dtype=torch.long, device="cuda")
            said, early = model(x)
            loss = F.cross_entropy(said, target) + overlap(said, target) + 0.4 * F.cross_entropy(early, target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for _ in range(2):
                model(r.input(r.batch(12), 3, 128, 128))[0].argmax(1)


remedy.run(job)
