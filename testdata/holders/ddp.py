# SPDX-License-Identifier: Apache-2.0
"""Holds a model by DistributedDataParallel, on the CPU. Its two buckets belong to C++. Prints "ready PID" and waits."""
import os, sys
import torch
import torch.distributed as dist
import torch.nn as nn

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 18
model = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256))
ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.25, gradient_as_bucket_view=False)
for _ in range(2):
    ddp(torch.ones(4, 256)).sum().backward()
print("ready", os.getpid(), flush=True)
sys.stdin.read()
