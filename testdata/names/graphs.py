# SPDX-License-Identifier: Apache-2.0
"""graphs.py: captures CUDA graphs of four batch sizes into one pool, the smallest first, so that each enlarges it, and
multiplies on two streams. Prints "loaded", waits for a line, and prints "ready" with the bytes by which each
capture enlarged the pool, as PyTorch has them, and with those of cuBLAS's workspaces by stream. It waits again."""
import json
import sys

import torch

N = 1024
torch.backends.cudnn.enabled = False
x = torch.ones(64, N, device="cuda")
side = torch.cuda.Stream()
print("loaded", flush=True)
sys.stdin.readline()


def reserved(pool):
    return sum(s["total_size"] for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == tuple(pool))


def capture(batch, pool):
    before = reserved(pool)
    x = torch.ones(batch, N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph, pool=pool):
        y = (x + 1).relu()
    graphs.append((graph, x, y))
    return reserved(pool) - before


def multiply():
    return torch.mm(x, weight)


def beside():
    with torch.cuda.stream(side):
        return torch.mm(x, weight)


weight = torch.ones(N, N, device="cuda")
kept = multiply(), beside()
pool, graphs = torch.cuda.graph_pool_handle(), []
sizes = [capture(batch, pool) for batch in (512, 4096, 8192, 16384)]
print("ready " + json.dumps(sizes), flush=True)
sys.stdin.readline()
