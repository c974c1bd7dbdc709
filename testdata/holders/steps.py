# SPDX-License-Identifier: Apache-2.0
"""Trains without a pause and measures its steps, for scripts/bench.sh. argv[1]: Python objects that it keeps besides.
Prints "ready PID", then for each line "TEXT" of its input: "TEXT STEPS SECONDS SLOWEST PROCESSOR", of the time since the
line before. SLOWEST is the median, over whole seconds, of the slowest step of a second, in microseconds; PROCESSOR are the
seconds of processor time of this thread."""
import os, statistics, sys, threading, time
import torch
import torch.nn as nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Record:
    def __init__(self, i):
        self.name, self.tokens, self.meta = "record %d" % i, [i, i + 1], {"id": i}


def build(objects):
    """Two objects for each record, and a tensor for every hundred records."""
    records = [Record(i) for i in range(objects // 2)]
    return records, {i: torch.zeros(64, device=DEVICE) for i in range(0, len(records), 100)}


def window(times):
    """Return the steps, the seconds and the median of the slowest step of each second."""
    slowest, second = [], [times[0], 0]
    for before, after in zip(times, times[1:]):
        if after - second[0] > 1_000_000_000:
            slowest.append(second[1])
            second = [after, 0]
        second[1] = max(second[1], after - before)
    return len(times) - 1, (times[-1] - times[0]) / 1e9, statistics.median(slowest or [second[1]]) / 1000


def read():
    for line in sys.stdin:
        asked.append(line.strip())
    asked.append(None)


data = build(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
torch.set_num_threads(1)
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(12)]).to(DEVICE)
optimizer = torch.optim.Adam(model.parameters())
batch, asked, times, ready = torch.ones(32, 256, device=DEVICE), [], [], False
threading.Thread(target=read, daemon=True).start()
begin = time.monotonic()
while True:
    times.append(time.monotonic_ns())
    if asked:
        text = asked.pop(0)
        if text is None:
            break
        print(text, "%d %.3f %.0f" % window(times), "%.3f" % (time.thread_time() - used), flush=True)
        times, used = [time.monotonic_ns()], time.thread_time()
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if not ready and time.monotonic() - begin > 1.5:
        ready, times, used = True, [], time.thread_time()
        print("ready", os.getpid(), flush=True)
