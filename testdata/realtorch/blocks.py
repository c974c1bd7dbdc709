# SPDX-License-Identifier: Apache-2.0
"""blocks.py FOLDER [STEPS [SEED]]: allocates at random on all GPUs: on streams, for other streams, in pools, in CUDA
graphs and beyond the memory. At each point it writes what PyTorch reports to FOLDER/truth.json,
prints a line, and waits for a line. Tests compare what vramprof reads from outside. With BLOCKS_WAIT=1 it waits for
a line before it allocates."""
import json
import os
import random
import sys

import torch

folder = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 4
dice = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
torch.backends.cudnn.enabled = False
if os.environ.get("BLOCKS_WAIT"):
    sys.stdin.readline()
gpus = range(torch.cuda.device_count())
streams = [[torch.cuda.Stream(g) for _ in range(4)] for g in gpus]
pools = [torch.cuda.MemPool() for _ in range(2)]
live, graphs = [], []


def allocate():
    g = dice.choice(gpus)
    n = dice.randrange(1, dice.choice([600, 9000, 800_000, 4 << 20, 20 << 20]))
    with torch.cuda.device(g), torch.cuda.stream(dice.choice(streams[g])):
        if g == 0 and dice.random() < 0.15:
            with torch.cuda.use_mem_pool(dice.choice(pools), 0):
                t = torch.empty(n, dtype=torch.uint8, device=f"cuda:{g}")
        else:
            t = torch.empty(n, dtype=torch.uint8, device=f"cuda:{g}")
        if dice.random() < 0.1:
            t.record_stream(dice.choice(streams[g]))
    live.append(t)


def capture():
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        live.append(torch.empty(1 << 16, device="cuda") * 2)
    graphs.append(graph)


for step in range(steps):
    for _ in range(150):
        allocate()
        if dice.random() < 0.6:
            live.pop(dice.randrange(len(live)))
    if step % 2:
        capture()
    if step % 3 == 2:
        torch.cuda.empty_cache()
        try:
            torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
    with open(folder + "/truth.json", "w") as f:
        json.dump({"segments": torch.cuda.memory_snapshot(), "stats": [torch.cuda.memory_stats(g) for g in gpus]}, f)
    print("point", flush=True)
    sys.stdin.readline()
