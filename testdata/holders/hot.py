# SPDX-License-Identifier: Apache-2.0
"""Trains at full speed, without a pause, and keeps things meanwhile. Writes to the file that argv[1] names a line for
each storage that it keeps or gives up, with the time before and after: "+ NANOSECONDS ADDRESS BYTES PATH", "- NANOSECONDS ADDRESS".
Prints "ready PID" when it has warmed up, and trains until its input ends; then "STEPS SECONDS"."""
import os, sys, threading, time
import torch
import torch.nn as nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
log = open(sys.argv[1], "w", buffering=1)


def keep(t, path):
    s = t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()
    log.write("+ %d %d %d %s\n" % (time.monotonic_ns(), s.data_ptr(), s.nbytes(), path))
    return t


def give_up(t):
    s = t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()
    log.write("- %d %d\n" % (time.monotonic_ns(), s.data_ptr()))


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(6)])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


class Trainer:
    def __init__(self, width):
        self.model = Net(width).to(DEVICE)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.history, self.recent, self.losses, self.batch = [], {}, [], torch.ones(32, width, device=DEVICE)

    def step(self, i):
        loss = self.model(self.batch).square().mean()
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        self.optimizer.step()
        if i % 10 == 0:
            self.history.append(keep(torch.zeros(20000, device=DEVICE), WHO + ".history[*]" + WHERE))
        if i % 50 == 0 and len(self.losses) < 100:
            y = self.model(self.batch)
            self.losses.append(keep(y.mean(), WHO + ".losses[*]" + WHERE))
        self.recent[i] = keep(torch.zeros(10000, device=DEVICE), WHO + ".recent[*]" + WHERE)
        if len(self.recent) > 300:
            give_up(self.recent.pop(next(iter(self.recent))))


WHO, WHERE = 'local "trainer"', " of main() (hot.py:LINE)"


def main():
    trainer = Trainer(256)
    keep(trainer.batch, WHO + ".batch" + WHERE)
    for i in range(3):
        trainer.step(i)
    for n, p in trainer.model.named_parameters():
        keep(p, "%s.model.%s%s" % (WHO, n, WHERE))
        keep(p.grad, "%s.model.%s.grad%s" % (WHO, n, WHERE))
        for key, value in trainer.optimizer.state[p].items():
            if value.device.type == DEVICE:
                keep(value, "%s.optimizer.state[*]['%s']%s" % (WHO, key, WHERE))
    stop = threading.Event()

    def wait():
        sys.stdin.read()
        stop.set()
    threading.Thread(target=wait, daemon=True).start()
    begin, steps = time.monotonic(), 3
    ready = False
    while not stop.is_set():
        trainer.step(steps)
        steps += 1
        if not ready and time.monotonic() - begin > 1.5:
            ready = True
            print("ready", os.getpid(), flush=True)
    print(steps, time.monotonic() - begin, flush=True)


main()
