# SPDX-License-Identifier: Apache-2.0
"""Trains two networks against each other, with an optimizer for each."""
import torch
from torch import nn
import remedy


def layers(*widths):
    return nn.Sequential(*[m for a, b in zip(widths, widths[1:]) for m in (nn.Linear(a, b), nn.LeakyReLU(0.2))])


def job(r):
    maker, judge = r.model(layers(256, 1024, 2048, 3072)), r.model(layers(3072, 2048, 1024, 1))
    of_maker, of_judge = r.adam(maker.parameters()), r.adam(judge.parameters())
    for _ in range(5):
        real = r.input(256, 3072)
        made = maker(r.input(256, 256))
        of_judge.zero_grad()
        (judge(real).mean() - judge(made.detach()).mean()).backward()
        of_judge.step()
        of_maker.zero_grad()
        judge(made).mean().backward()
        of_maker.step()


remedy.run(job)
