# SPDX-License-Identifier: Apache-2.0
"""history.py FILE SCRIPT [ARGUMENTS]: runs a job under PyTorch's own memory history, and writes to FILE what
that has recorded: {"traces": [[[action, address, size, stream], …], …] by device, "pools": [[[entries of each trace so far],
[[device, address, size, id], …] of each segment], …] before each empty_cache() and at the end}."""
import json
import os
import runpy
import sys

import torch

torch.backends.cudnn.enabled = False  # a stub without a version
file = sys.argv[1]
sys.argv = sys.argv[2:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
pools = []


def note_pools():
    all = torch.cuda.memory._snapshot()
    pools.append([[len(t) for t in all["device_traces"]], [[s["device"], s["address"], s["total_size"], s["segment_pool_id"]] for s in all["segments"]]])


def before(function):
    def call(*arguments):
        note_pools()
        return function(*arguments)
    return call


# Only these take segments away.
torch.cuda.empty_cache = torch.cuda.memory.empty_cache = before(torch.cuda.empty_cache)
torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=10**7)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit:
    pass
note_pools()
traces = torch.cuda.memory._snapshot()["device_traces"]
with open(file, "w") as f:
    json.dump({
        "traces": [[[e["action"], e.get("addr", 0), e["size"], e["stream"]] for e in t] for t in traces],
        "pools": pools,
    }, f)
