#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds memory of known ages, for a tracer that attaches in the middle (--wait). Points:
    old      tensors were allocated, some of them freed and cached
    new      more tensors were allocated
    fewer    every third of the old ones is freed
    gone     the rest of the old ones is freed
    emptied  the cache is freed too; PyTorch reports nothing then
    after    one more tensor is allocated
Lines that tests look for end in "# site: NAME"."""
import torch
import jobs


def old(sizes):
    return [torch.empty(n, dtype=torch.uint8, device="cuda:%d" % d) for n in sizes for d in range(jobs.point.devices)]  # site: old


def new(sizes):
    return [torch.empty(n, dtype=torch.uint8, device="cuda:%d" % d) for n in sizes for d in range(jobs.point.devices)]  # site: new


def main():
    options = jobs.arguments(description=__doc__)
    small, large = [1000, 70_000, 500_000] * 8, [3 << 20, 17 << 20, 40 << 20] * 2
    kept, freed = old(small + large), old([5000, 900_000, 30 << 20])
    del freed
    jobs.mark()
    jobs.point("old")
    later = new(small + large)
    jobs.point("new")
    del kept[::3]
    jobs.point("fewer")
    kept.clear()
    jobs.point("gone")
    torch.cuda.empty_cache()
    jobs.point("emptied")
    later += new([1000])
    jobs.point("after")
    assert later and options


if __name__ == "__main__":
    main()
