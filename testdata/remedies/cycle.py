# SPDX-License-Identifier: Apache-2.0
"""Trains two generators that translate pictures into each other's style and back, and two that judge patches, with an optimizer for each pair and a pool of old pictures."""
import itertools
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width), nn.ReLU(True),
                                  nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width))

    def forward(self, x):
        return x + self.body(x)


class Painter(nn.Module):
    def __init__(self, r, width=24, blocks=4):
        super().__init__()
        self.r = r
        self.enter = nn.Sequential(nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.InstanceNorm2d(width), nn.ReLU(True),
                                   nn.Conv2d(width, 2 * width, 3, 2, 1), nn.InstanceNorm2d(2 * width), nn.ReLU(True),
                                   nn.Conv2d(2 * width, 4 * width, 3, 2, 1), nn.InstanceNorm2d(4 * width), nn.ReLU(True))
        self.blocks = nn.ModuleList(Residual(4 * width) for _ in range(blocks))
        self.leave = nn.Sequential(nn.ConvTranspose2d(4 * width, 2 * width, 3, 2, 1, 1), nn.InstanceNorm2d(2 * width), nn.ReLU(True),
                                   nn.ConvTranspose2d(2 * width, width, 3, 2, 1, 1), nn.InstanceNorm2d(width), nn.ReLU(True),
                                   nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())

    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = self.r.call(block, x)
        return self.leave(x)


def judge(width=24):
    layers, before = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2, True)], width
    for after in (2 * width, 4 * width):
        layers += [nn.Conv2d(before, after, 4, 2, 1), nn.InstanceNorm2d(after), nn.LeakyReLU(0.2, True)]
        before = after
    return nn.Sequential(*layers, nn.Conv2d(before, 1, 4, 1, 1))


def real(answer):
    return F.mse_loss(answer, torch.ones_like(answer))


def job(r):
    there, back = r.model(Painter(r)), r.model(Painter(r))
    judge_a, judge_b = r.model(judge()), r.model(judge())
    painters = r.adam(itertools.chain(there.parameters(), back.parameters()))
    judges = r.adam(itertools.chain(judge_a.parameters(), judge_b.parameters()))
    pool = []
    for _ in range(4):
        a, b = r.input(r.batch(2), 3, 96, 96), r.input(r.batch(2), 3, 96, 96)
        for p in itertools.chain(judge_a.parameters(), judge_b.parameters()):
            p.requires_grad_(False)
        painters.zero_grad()
        fake_b, fake_a = there(a), back(b)
        loss = real(judge_b(fake_b)) + real(judge_a(fake_a))
        loss += 10 * (F.l1_loss(back(fake_b), a) + F.l1_loss(there(fake_a), b))
        loss += 5 * (F.l1_loss(there(b), b) + F.l1_loss(back(a), a))
        loss.backward()
        painters.step()
        for p in itertools.chain(judge_a.parameters(), judge_b.parameters()):
            p.requires_grad_(True)
        judges.zero_grad()
        pool = (pool + [(fake_a.detach(), fake_b.detach())])[-3:]
        old_a, old_b = pool[0]
        for judging, picture, fake in ((judge_a, a, old_a), (judge_b, b, old_b)):
            answer = judging(fake)
            ((real(judging(picture)) + F.mse_loss(answer, torch.zeros_like(answer))) / 2).backward()
        judges.step()


remedy.run(job)
