# SPDX-License-Identifier: Apache-2.0
"""Trains a network that segments pictures: shortcuts through gates of attention, and a loss at each depth of the way up."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


def pair(before, after):
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
        nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True))


class Gate(nn.Module):
    def __init__(self, width, middle):
        super().__init__()
        self.below, self.beside, self.weigh = nn.Conv2d(width, middle, 1), nn.Conv2d(width, middle, 1), nn.Conv2d(middle, 1, 1)

    def forward(self, x, skip):
        alpha = torch.sigmoid(self.weigh(F.relu(self.below(x) + self.beside(skip))))
        return skip * alpha


class Up(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.up, self.gate, self.pair = nn.ConvTranspose2d(before, after, 2, 2), Gate(after, after // 2), pair(2 * after, after)

    def forward(self, x, skip):
        x = self.up(x)
        skip = self.gate(x, skip)
        return self.pair(torch.cat([skip, x], dim=1))


class Segmenter(nn.Module):
    def __init__(self, r, widths=(24, 48, 96, 192), classes=4):
        super().__init__()
        self.r = r
        self.downs = nn.ModuleList(pair(a, b) for a, b in zip((3,) + widths, widths))
        self.ups = nn.ModuleList(Up(b, a) for a, b in zip(widths[-2::-1], widths[:0:-1]))
        self.heads = nn.ModuleList(nn.Conv2d(a, classes, 1) for a in widths[-2::-1])

    def forward(self, x):
        skips, outs = [], []
        for i, down in enumerate(self.downs):
            x = down(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        x = skips.pop()
        for up, head in zip(self.ups, self.heads):
            x = self.r.call(up, x, skips.pop())
            outs.append(head(x))
        return outs


def dice(logits, target):
    p = logits.softmax(1)
    shared = (p * target).sum((2, 3))
    return 1 - ((2 * shared + 1) / (p.sum((2, 3)) + target.sum((2, 3)) + 1)).mean()


def job(r):
    model = r.model(Segmenter(r))
    optimizer = r.momentum(model.parameters())
    for _ in range(4):
        x, target = r.input(r.batch(6), 3, 128, 128), r.input(r.batch(6), 4, 128, 128)
        loss = 0
        for weight, logits in zip((0.25, 0.5, 1.0), model(x)):
            y = F.interpolate(target, size=logits.shape[2:])
            loss = loss + weight * (dice(logits, y) + F.binary_cross_entropy_with_logits(logits, y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


remedy.run(job)
