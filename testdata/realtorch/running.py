# SPDX-License-Identifier: Apache-2.0
"""running.py FOLDER LIVE SECONDS [PAUSE]: allocates and frees without a pause, or with one of PAUSE seconds after each 997
allocations, with LIVE blocks and 40 that stay on one GPU, on streams and for other streams, while PyTorch records each
event. It prints "running" when it begins, and ends early at a SIGUSR1. At the end it writes to
FOLDER/events.json the time of each event in µs of the Unix time, 1 for a block that was given out, 2 for one that
the program freed and 0 for one that waits for no stream any more, its address and its size."""
import json
import random
import signal
import sys
import time

import torch

folder, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
pause = float(sys.argv[4]) if len(sys.argv) > 4 else 0
asked_to_end = []
signal.signal(signal.SIGUSR1, lambda *_: asked_to_end.append(True))
torch.backends.cudnn.enabled = False
torch.cuda.init()
torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=20_000_000)
dice = random.Random(1)
streams = [torch.cuda.Stream() for _ in range(3)]
live = [None] * count
kept = [torch.empty(dice.randrange(1, 3_000_000), dtype=torch.uint8, device="cuda") for _ in range(40)]
sizes = [dice.choice([700, 9000, 800_000]) for _ in range(997)]


def step(i):
    with torch.cuda.stream(streams[i % 3]):
        for s in sizes:
            t = torch.empty(dice.randrange(1, s), dtype=torch.uint8, device="cuda")
            if s == 700:
                t.record_stream(streams[dice.randrange(3)])
            live[dice.randrange(count)] = t


for i in range(3):
    step(i)
print("running", flush=True)
end, i = time.monotonic() + seconds, 0
while time.monotonic() < end and not asked_to_end:
    step(i)
    if pause:
        time.sleep(pause)
    i += 1
    if i % 50 == 0:
        torch.cuda.empty_cache()
kinds = {"alloc": 1, "free_completed": 0, "free_requested": 2}
trace = torch.cuda.memory._snapshot()["device_traces"][0]
with open(folder + "/events.json", "w") as f:
    json.dump([[e["time_us"], kinds[e["action"]], e["addr"], e["size"]] for e in trace if e["action"] in kinds], f)
