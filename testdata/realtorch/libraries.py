# SPDX-License-Identifier: Apache-2.0
"""libraries.py: has cuBLAS and NCCL do something, half a second apart: they take memory that no call of CUDA reports."""
import os
import time

import torch
import torch.distributed as dist


def product(x):
    return x @ x


def communicate(x):
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(x)


print("pid", os.getpid(), flush=True)
tensor = torch.ones(500, 500, device="cuda")
for step in (product, communicate):
    time.sleep(0.5)
    step(tensor)
    torch.cuda.synchronize()
    print(step.__name__, flush=True)
time.sleep(1.5)
