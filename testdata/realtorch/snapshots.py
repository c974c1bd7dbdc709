# SPDX-License-Identifier: Apache-2.0
"""snapshots.py FILE [STEPS [ENTRIES [SEED]]]: records PyTorch's memory history, with the latest ENTRIES events, while it
allocates and frees on all GPUs, gives memory back and runs out of it. Then it writes the snapshot to FILE and prints what
PyTorch reports at that moment, as a line of JSON. Tests compare what vramprof makes of the file."""
import collections
import json
import os
import random
import sys

import torch

file = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
entries = int(sys.argv[3]) if len(sys.argv) > 3 else 100_000
dice = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
gpus = range(torch.cuda.device_count())
streams = [torch.cuda.Stream(g) for g in gpus]
live = []


def weights(gpu):
    live.append(torch.empty(dice.randrange(1, 3 << 20), dtype=torch.uint8, device=f"cuda:{gpu}"))


def activations(gpu):
    with torch.cuda.stream(streams[gpu]):
        live.append(torch.empty(dice.randrange(1, 30 << 20), dtype=torch.uint8, device=f"cuda:{gpu}"))
        if dice.random() < 0.3:
            live[-1].record_stream(torch.cuda.default_stream(gpu))


def step(i):
    for gpu in gpus:
        weights(gpu)
        activations(gpu)
    while len(live) > 6:
        live.pop(dice.randrange(len(live)))
    if i % 7 == 6:
        torch.cuda.empty_cache()


older = [torch.empty(1 << 20, dtype=torch.uint8, device=f"cuda:{g}") for g in gpus]  # before the history
torch.cuda.memory._record_memory_history(max_entries=entries, stacks="python")
for i in range(steps):
    step(i)
    if i == 1:
        older.pop()
try:
    torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    pass
torch.cuda.memory._dump_snapshot(file)
lines = collections.Counter()
for segment in torch.cuda.memory_snapshot():
    for block in segment["blocks"]:
        if block["state"] == "active_allocated":
            names = [f["name"] for f in block["frames"]]
            lines[f"cuda:{segment['device']} {names[0] if names else '-'}"] += block["size"]
print(json.dumps({
    "devices": [{"allocated": torch.cuda.memory_allocated(g), "reserved": torch.cuda.memory_reserved(g),
                 "peak": torch.cuda.max_memory_allocated(g)} for g in gpus],
    "lines": lines,
}), flush=True)
