#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds memory through pauses of tracing (--wait). Points:
    held     small and large tensors were allocated
    same     nothing happened
    reused   small ones were freed, and others of the same sizes allocated, at the same addresses
    large    so was the largest one
    freed    all but one large one are freed
Between "held" and "freed" no other tensor comes or goes. Lines that tests look for end in "# site: NAME"."""
import torch
import jobs


def small(n):
    return [torch.empty(5000, dtype=torch.uint8, device="cuda:0") for _ in range(n)]  # site: small


def large(sizes):
    return [torch.empty(n, dtype=torch.uint8, device="cuda:0") for n in sizes]  # site: large


def reused(sizes):
    return [torch.empty(n, dtype=torch.uint8, device="cuda:0") for n in sizes]  # site: reused


def again(kept):
    """Frees tensors and allocates others of the same sizes at the same addresses."""
    sizes, at = [t.numel() for t in kept], sorted(t.data_ptr() for t in kept)
    kept.clear()
    kept += reused(sizes)
    assert sorted(t.data_ptr() for t in kept) == at, "other addresses"


def main():
    jobs.arguments(description=__doc__)
    little, big, most = small(300), large([8 << 20] * 3), large([64 << 20])
    jobs.point("held")
    jobs.point("same")
    again(little)
    jobs.point("reused")
    again(most)
    jobs.point("large")
    little.clear(), most.clear()
    del big[1:]
    jobs.point("freed")
    assert big


if __name__ == "__main__":
    main()
