#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A helper puts tensors on the GPU for three callers, of which one keeps them all; and one line of a model calls
two modules whose outputs stay. Runs for --seconds. Lines that tests look for end in "# site: NAME"."""
import argparse
import os
import time

import torch


def to_gpu(tensor):
    return tensor.to("cuda")  # site: helper


class Replay:
    def __init__(self):
        self.list = []

    def keep(self, tensor):
        self.list.append(to_gpu(tensor))  # site: keep


class Model:
    def __init__(self):
        self.weights = [to_gpu(torch.zeros(1 << 18)) for _ in range(8)]  # site: weights
        self.mlp = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU()).cuda()

    def forward(self, x):
        return self.mlp(x)  # site: model


def next_batch(host):
    return to_gpu(host)  # site: batch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8)
    options = parser.parse_args()
    model, replay, host = Model(), Replay(), torch.zeros(1 << 16)
    kept = model.forward(torch.zeros(1024, 256, device="cuda"))  # with what autograd saves of it
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        batch = next_batch(host)
        replay.keep(host)
        time.sleep(0.02)
    assert kept is not None and batch is not None
    os._exit(0)  # frees nothing


if __name__ == "__main__":
    main()
