# SPDX-License-Identifier: Apache-2.0
"""backends.py FOLDER COUNT [LIBRARY]: allocates COUNT tensors on all GPUs and frees some, with the backend that
PYTORCH_CUDA_ALLOC_CONF names or with the functions new_memory and old_memory of LIBRARY. It writes what is live
to FOLDER/truth.json, prints a line, and waits for a line; then it frees all and stops again."""
import json
import random
import sys

import torch

folder, count = sys.argv[1], int(sys.argv[2])
if len(sys.argv) > 3:
    own = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[3], "new_memory", "old_memory")
    torch.cuda.memory.change_current_allocator(own)
torch.backends.cudnn.enabled = False
dice = random.Random(1)
gpus = range(torch.cuda.device_count())
streams = [[torch.cuda.Stream(g) for _ in range(3)] for g in gpus]
live = []
for _ in range(count):
    g = dice.choice(gpus)
    stream = dice.choice(streams[g])
    with torch.cuda.device(g), torch.cuda.stream(stream):
        live.append((torch.empty(dice.randrange(1, 9000), dtype=torch.uint8, device=f"cuda:{g}"), stream))
    if dice.random() < 0.4:
        live.pop(dice.randrange(len(live)))


def point():
    with open(folder + "/truth.json", "w") as f:
        json.dump([[t.data_ptr(), t.numel(), t.get_device(), s.cuda_stream] for t, s in live], f)
    print("point", flush=True)
    sys.stdin.readline()


point()
live.clear()
torch.cuda.synchronize()
point()
