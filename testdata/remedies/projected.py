# SPDX-License-Identifier: Apache-2.0
"""Trains a residual network whose shortcuts are projected where the width changes, with autocast around model and loss."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Basic(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)) if stride > 1 or before != after else None

    def forward(self, x):
        identity = x
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class Net(nn.Module):
    def __init__(self, r, widths=(32, 64, 128), depth=2):
        super().__init__()
        self.r = r
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 7, 2, 3, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        blocks, before = [], widths[0]
        for n, width in enumerate(widths):
            for i in range(depth):
                blocks.append(Basic(before, width, 2 if n and not i else 1))
                before = width
        self.blocks = nn.ModuleList(blocks)
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(before, 100)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = self.r.call(block, x)
        return self.fc(torch.flatten(self.pool(x), 1))


def job(r):
    net = r.model(Net(r))
    optimizer = r.momentum(net.parameters())
    for epoch in range(2):
        net.train()
        for _ in range(3):
            images, labels = r.input(r.batch(24), 3, 128, 128), torch.zeros(r.batch(24), dtype=torch.long, device="cuda")
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                out = net(images)
                loss = F.cross_entropy(out, labels)
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.inference_mode():
            net(r.input(r.batch(32), 3, 128, 128)).argmax(1)


remedy.run(job)
