# SPDX-License-Identifier: Apache-2.0
"""Waits in the middle of a backward pass, while a gradient of 28,000 bytes waits for its turn: only C++ holds it.
Prints "ready PID". backward.py N does so N times, each time with other tensors made and freed before, and goes on at
each line that it reads."""
import os, random, sys
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Waits(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        print("ready", os.getpid(), flush=True)
        sys.stdin.readline()
        return g


def step():
    x, y = torch.ones(5000, device=DEVICE, requires_grad=True), torch.ones(7000, device=DEVICE, requires_grad=True)
    b = y * 2
    a = Waits.apply(x)
    ((a * a).sum() + (b * b).sum()).backward()


step()
for _ in range(int(sys.argv[1]) - 1 if len(sys.argv) > 1 else 0):
    made = [torch.ones(random.randrange(1, 64), device=DEVICE) for _ in range(random.randrange(1000))]
    random.shuffle(made)
    del made[: random.randrange(len(made) + 1)]
    step()
