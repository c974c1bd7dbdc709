# SPDX-License-Identifier: Apache-2.0
"""Trains a detector: features of three sizes that are merged, heads that all sizes share, and an operation of the user's own."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Gate(torch.autograd.Function):
    """x times its sigmoid, which keeps only x."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class Stage(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.down, self.norm = nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after)
        self.parts = nn.ModuleList(nn.Sequential(nn.Conv2d(after // 2, after // 2, 3, padding=1), nn.BatchNorm2d(after // 2)) for _ in range(2))
        self.merge = nn.Conv2d(2 * after, after, 1)

    def forward(self, x):
        x = Gate.apply(self.norm(self.down(x)))
        parts = list(x.chunk(2, 1))
        for part in self.parts:
            parts.append(parts[-1] + Gate.apply(part(parts[-1])))
        return Gate.apply(self.merge(torch.cat(parts, 1)))


class Detector(nn.Module):
    def __init__(self, r, widths=(16, 32, 64, 96, 128), out=64, classes=20):
        super().__init__()
        self.r = r
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
        self.stages = nn.ModuleList(Stage(a, b) for a, b in zip(widths, widths[1:]))
        self.side = nn.ModuleList(nn.Conv2d(w, out, 1) for w in widths[2:])
        self.smooth = nn.ModuleList(nn.Conv2d(out, out, 3, padding=1) for _ in widths[2:])
        self.kind, self.box = (nn.Sequential(nn.Conv2d(out, out, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(out, n, 1)) for n in (classes, 4))

    def forward(self, x):
        x, sizes = self.stem(x), []
        for stage in self.stages:
            x = self.r.call(stage, x)
            sizes.append(x)
        above, out = None, []
        for side, smooth, x in reversed(list(zip(self.side, self.smooth, sizes[1:]))):
            x = side(x)
            above = x if above is None else x + F.interpolate(above, size=x.shape[2:])
            out.append(smooth(above))
        return [self.kind(x).flatten(2) for x in out], [self.box(x).flatten(2) for x in out]


def job(r):
    model = r.model(Detector(r))
    optimizer = r.momentum(model.parameters())
    for step in range(5):
        x = r.input(r.batch(12), 3, 128 + 32 * (step % 2), 128)
        kinds, boxes = model(x)
        kinds, boxes = torch.cat(kinds, 2), torch.cat(boxes, 2)
        losses = {"kind": F.binary_cross_entropy_with_logits(kinds, torch.zeros_like(kinds), reduction="sum") / len(x), "box": F.l1_loss(boxes, torch.zeros_like(boxes))}
        sum(losses.values()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


remedy.run(job)
