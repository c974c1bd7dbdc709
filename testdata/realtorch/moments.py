#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what PyTorch holds at many moments, to compare with reports as of these moments. Points:
"old" (with --old: there are tensors and a cache of 1.5 GiB), then "end". A moment is a line of
JSON in --moments FILE, at a time when no other thread allocates:
    {"time": ns of CLOCK_MONOTONIC, "allocated": 1536, "reserved": 2097152, "max": 4096}
max: since the first moment"""
import argparse, json, time
import torch
import jobs

MIB = 1 << 20


class Moments:
    def __init__(self, path):
        self.file = open(path, "w")
        torch.cuda.reset_peak_memory_stats()

    def note(self):
        cuda = torch.cuda
        print(json.dumps(dict(allocated=cuda.memory_allocated(), reserved=cuda.memory_reserved(), max=cuda.max_memory_allocated(), time=time.monotonic_ns())),
              file=self.file, flush=True)
        time.sleep(0.0005)


def empty(mib):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


def small(count):
    return [torch.empty(1 + i * 37 % 9000, dtype=torch.uint8, device="cuda") for i in range(count)]


def train(moments, steps, pause):
    """A model's steps: memory of the forward pass lives for some ms, on two threads."""
    model = jobs.transformer(2, 64).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        loss = model(torch.empty(8 * (1, 3, 2)[step % 3], 128, 64, device="cuda")).square().mean()
        moments.note()
        optimizer.zero_grad()
        loss.backward()
        moments.note()
        optimizer.step()
        del loss
        moments.note()
        time.sleep(pause)


def bursts(moments, count):
    """Takes most of the memory, from the cache, for 50 ms from time to time."""
    for _ in range(count):
        burst = [empty(250) for _ in range(5)]
        moments.note()
        time.sleep(0.05)
        del burst
        moments.note()
        time.sleep(0.4)


def refused(moments):
    """Causes an error after which the cache is empty; the program continues."""
    try:
        empty(1 << 20)
        raise SystemExit("a TiB was granted")
    except torch.OutOfMemoryError:
        pass
    marker = empty(1)  # after freeing its cache, PyTorch reports its totals with the next tensor
    moments.note()
    return marker


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--moments", required=True, metavar="FILE")
    p.add_argument("--old", action="store_true")
    options = jobs.arguments(p)
    kept = []
    if options.old:
        kept = [empty(n) for n in (3, 40, 0.2, 90)] + small(300)
        cached = [empty(250) for _ in range(6)]
        del cached
        jobs.point("old")
    moments = Moments(options.moments)
    kept += small(1)  # from here on, a tracer knows what is older than itself
    moments.note()
    kept += small(2000)
    moments.note()
    train(moments, 60, 0.02)
    bursts(moments, 4)
    del kept[::2]
    moments.note()
    kept.append(refused(moments))
    for i in range(40):
        kept += [empty(0.5 + i % 7)]
        moments.note()
        time.sleep(0.01)
    kept.clear()
    moments.note()
    train(moments, 20, 0.02)
    moments.note()
    jobs.point("end")


if __name__ == "__main__":
    main()
