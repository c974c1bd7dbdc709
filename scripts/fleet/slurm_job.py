#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of a Slurm job with PyTorch: rank 0 keeps the outputs of every step, rank 1 keeps a cache
that it does not use and then asks for more than its GPU has."""
import os
import sys
import time

import torch

MiB = 1 << 18  # numbers of 4 bytes


def leak(kept):
    for _ in range(40):
        kept.append(torch.empty(2 * MiB, device="cuda"))
        time.sleep(0.1)


def exhaust():
    weights = torch.empty(200 * MiB, device="cuda")
    batch = torch.empty(300 * MiB, device="cuda")
    del batch  # 300 MiB stay in PyTorch's cache, without room for the next batch
    batch = torch.empty(400 * MiB, device="cuda")
    time.sleep(2)
    try:
        torch.empty(1 << 40, device="cuda")
    except torch.OutOfMemoryError as error:
        print("rank 1:", str(error).splitlines()[0][:80], flush=True)
    time.sleep(2)
    return weights, batch


if __name__ == "__main__":
    rank = int(os.environ["SLURM_PROCID"])
    torch.cuda.set_device(0)
    print("rank", rank, "of job", os.environ["SLURM_JOB_ID"], flush=True)
    outputs = []
    leak(outputs) if rank == 0 else exhaust()
    sys.stdout.flush()
