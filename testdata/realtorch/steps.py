#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two trainings, each a process, that print their own steps and phases.

    steps.py [adam|accumulate|grow WIDTH]

"adam" has batches of different sizes, the largest in one step, and evaluations; "accumulate" has four backward passes
in each of its steps, an optimizer that allocates nothing, and an evaluation that needs most. "grow" runs until SIGTERM: two
backward passes and 3 MiB more in each step, an evaluation after each fifth. At its end each prints a line
of JSON: {"pid": …, "steps": 24, "phases": [[step, phase, most bytes allocated in it, begin, end], …]}. The step of an
evaluation is the last one before it. Times are ns of CLOCK_MONOTONIC."""
import contextlib, json, os, signal, subprocess, sys, time
import torch, torch.nn.functional as F
import jobs

phases = []


@contextlib.contextmanager
def phase(step, name):
    torch.cuda.reset_peak_memory_stats()
    begin = time.monotonic_ns()
    yield
    phases.append([step, name, torch.cuda.max_memory_allocated(), begin, time.monotonic_ns()])


def evaluate(model, step, size, width=256):
    model.eval()
    with phase(step, "evaluation"), torch.no_grad():
        for _ in range(3):
            x = torch.empty(size, 64, width).cuda()
            F.mse_loss(model(x), x)
    model.train()


def train(model, optimizer, step, sizes, width=256):
    for size in sizes:
        with phase(step, "data"):
            x = torch.empty(size, 64, width).cuda()
        with phase(step, "forward"):
            loss = F.mse_loss(model(x), x)
        with phase(step, "backward"):
            loss.backward()
        del x, loss
    with phase(step, "step"):
        optimizer.step()
    with phase(step, "zero_grad"):
        optimizer.zero_grad()


def grow(width):
    """Keeps 3 MiB in each step. Each eighth step has a large batch."""
    ended, kept = [], []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    model = jobs.transformer(2, width).cuda()
    optimizer, step = torch.optim.AdamW(model.parameters()), 0
    while not ended:
        step += 1
        train(model, optimizer, step, [2, 24 if step % 8 == 0 else 2], width)
        with phase(step, "keep"):
            kept.append(torch.empty(3 << 20, dtype=torch.uint8, device="cuda"))
        if step == 2:
            print("running", flush=True)
        if step % 5 == 0:
            evaluate(model, step, 2, width)
        time.sleep(0.02)  # a fast machine would run out of memory
    return json.dumps(dict(pid=os.getpid(), steps=step, phases=phases))


def main(kind):
    model = jobs.transformer(2, 256).cuda()
    if kind == "adam":
        optimizer, steps = torch.optim.AdamW(model.parameters()), 24
    else:
        optimizer, steps = torch.optim.SGD(model.parameters(), lr=0.1), 12
    for step in range(1, steps + 1):
        if kind == "adam":
            train(model, optimizer, step, [48 if step == 17 else 16 + step % 3])
        else:
            train(model, optimizer, step, [16] * 4)
        if step % 6 == 0:
            evaluate(model, step, 512 if kind == "accumulate" and step == 6 else 16)
    return json.dumps(dict(pid=os.getpid(), steps=steps, phases=phases))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(grow(int(sys.argv[2])) if sys.argv[1] == "grow" else main(sys.argv[1]))
    else:
        other = subprocess.Popen([sys.executable, __file__, "accumulate"])
        text, failed = main("adam"), other.wait()
        print(text)  # after the other: long lines of two processes mix
        sys.exit(failed)
