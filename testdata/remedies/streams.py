# SPDX-License-Identifier: Apache-2.0
"""Prefetches on a side stream with record_stream, and keeps the features of each second step."""
import random
import torch
from torch import nn
import remedy


class Net(nn.Module):
    def __init__(self, r):
        super().__init__()
        self.r = r
        self.blocks = nn.ModuleList(remedy.Block(256) for _ in range(5))

    def forward(self, x):
        for block in self.blocks:
            x = self.r.call(block, x)
        return x


def job(r):
    dice = random.Random(3)
    net = r.model(Net(r))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    side, features = torch.cuda.Stream(), []
    for step in range(12):
        with torch.cuda.stream(side):
            x = r.input(dice.choice((4, 6, 8)), dice.randrange(64, 256, 16), 256)
        x.record_stream(torch.cuda.current_stream())
        y = net(x)
        if step % 2:
            features.append(r.keep(y * 2))  # site: kept
        loss = y.square().mean()
        optimizer.zero_grad()
        del x, y
        loss.backward()
        optimizer.step()


remedy.run(job)
