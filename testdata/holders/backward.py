# SPDX-License-Identifier: Apache-2.0
"""Waits in the middle of a backward pass, while a gradient of 28,000 bytes waits for its turn: only C++ holds it.
Prints "ready PID"."""
import os, sys
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Waits(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        print("ready", os.getpid(), flush=True)
        sys.stdin.read()
        return g


def step():
    x, y = torch.ones(5000, device=DEVICE, requires_grad=True), torch.ones(7000, device=DEVICE, requires_grad=True)
    b = y * 2
    a = Waits.apply(x)
    ((a * a).sum() + (b * b).sum()).backward()


step()
