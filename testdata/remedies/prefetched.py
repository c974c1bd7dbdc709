# SPDX-License-Identifier: Apache-2.0
"""Trains on points whose batches a thread copies to the GPU on a stream of its own, two of them ahead."""
import queue
import threading
import torch
from torch import nn
import remedy


class Shared(nn.Module):
    """Layers that each point goes through, and what all points agree on."""

    def __init__(self, before, after):
        super().__init__()
        self.points, self.all = nn.Linear(before, after), nn.Linear(before, after)
        self.norm = nn.LayerNorm(after)

    def forward(self, x):
        return self.norm(self.points(x) + self.all(x.amax(1, keepdim=True))).relu()


class Cloud(nn.Module):
    def __init__(self, r, widths=(6, 96, 192, 192, 384, 384)):
        super().__init__()
        self.r = r
        self.layers = nn.ModuleList(Shared(a, b) for a, b in zip(widths, widths[1:]))
        self.head = nn.Sequential(nn.Linear(widths[-1], 512), nn.ReLU(), nn.Linear(512, 40))

    def forward(self, x):
        for layer in self.layers:
            x = self.r.call(layer, x)
        return self.head(x.amax(1))


def load(r, ready, ask, steps):
    stream = torch.cuda.Stream()
    for _ in range(steps):
        ask.acquire()
        with torch.cuda.stream(stream):
            x = r.input(r.batch(20), 1536, 6, device="cpu").cuda(non_blocking=True)
        ready.put(x)


def job(r):
    model = r.model(Cloud(r))
    optimizer = r.momentum(model.parameters())
    steps, ready, ask = 6, queue.Queue(), threading.Semaphore(2)
    threading.Thread(target=load, args=(r, ready, ask, steps), daemon=True).start()
    for _ in range(steps):
        x = ready.get()
        x.record_stream(torch.cuda.current_stream())
        loss = nn.functional.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.long, device="cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del x, loss
        ask.release()


remedy.run(job)
