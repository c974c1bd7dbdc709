#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps a small tensor in each segment that the activations of a step took. Points:
    fragmented  the activations are freed, the metrics are kept
    forgotten   the metrics are freed too
    emptied     after torch.cuda.empty_cache()
Lines that tests look for end in "# site: NAME"."""
import torch
import jobs

MIB = 1 << 20


class Metrics:
    def __init__(self):
        self.history = []

    def update(self, activation):
        self.history.append(activation[: 2 * MIB].clone())  # site: metrics


class Loader:
    def __init__(self):
        self.kept = []

    def next(self, mib):
        batch = torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")  # site: loader
        self.kept.append(batch)


def layer(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")  # site: layer


def step(metrics, loader, layers):
    """Each two layers take a segment of 20 MiB."""
    activations = []
    for i in range(layers):
        activations.append((layer(8), layer(8)))
        metrics.update(activations[-1][0])
        if i % 8 == 0:
            loader.next(2)
    losses = [torch.empty(1, device="cuda") for _ in range(300)]
    return losses[::100]


def main():
    options = jobs.arguments(description=__doc__)
    metrics, loader = Metrics(), Loader()
    losses = step(metrics, loader, 64)
    jobs.point("fragmented")
    metrics.history.clear()
    jobs.point("forgotten")
    torch.cuda.empty_cache()
    jobs.point("emptied")
    assert losses and loader and options


if __name__ == "__main__":
    main()
