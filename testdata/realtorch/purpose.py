#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a model and prints what its memory is for, as the model, the optimizer and autograd say.

    purpose.py transformer|cnn|lora|amp

Points: "begin" with --begin, "trained" (before the next step), "forward" (the graph of a step is kept), "backward" (gradients are kept), "end".
Each point is a line of JSON with the bytes of each purpose, of whole blocks of PyTorch's allocator, each once and in the first
purpose that applies: weights, gradients, state, buffers, inputs, saved (for the backward pass). The latter are those of
the same step before, by torch.autograd.graph.saved_tensors_hooks; "modules" has them by the innermost module that was called when each was saved first.
With --peak, "warm" comes after the first step, and "peak" before the end: the same of the moment
at which most was allocated, as records of PyTorch and saved_tensors_hooks in each step show it; "other" is the rest."""
import argparse, contextlib, json, os, sys
import torch, torch.nn as nn, torch.nn.functional as F
import jobs


class Convolutions(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        layers, channels = [], 3
        for _ in range(4):
            layers += [nn.Unfold(3, padding=1), Mix(channels * 9, width), nn.BatchNorm1d(width), nn.ReLU(), Fold(32)]
            channels = width
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)))


class Mix(nn.Module):
    """A convolution's matrix product: this PyTorch has no cuDNN."""

    def __init__(self, inside, outside):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outside, inside))

    def forward(self, x):
        return self.weight @ x


class Fold(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return x.view(x.shape[0], x.shape[1], self.size, self.size)


class LoRA(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def adapt(model):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, LoRA(child))
            elif not list(child.children()):
                child.requires_grad_(False)
    return model


class Language(nn.Module):
    def __init__(self, words=4096, width=512, layers=4):
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(words, width), jobs.transformer(layers, width), nn.Linear(width, words)
        self.register_buffer("position", torch.zeros(128, width))

    def forward(self, x):
        return self.head(self.body(self.embedding(x) + self.position))


class Training:
    def __init__(self, kind):
        self.kind = kind
        if kind == "cnn":
            self.model = Convolutions().cuda()
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        else:
            model = Language()
            self.model = (adapt(model) if kind == "lora" else model).cuda()
            self.optimizer = torch.optim.AdamW(p for p in self.model.parameters() if p.requires_grad)
        self.scaler = torch.amp.GradScaler("cuda", enabled=kind == "amp")

    def batch(self):
        if self.kind == "cnn":
            return torch.zeros(32, 3, 32, 32).cuda(), torch.zeros(32, dtype=torch.int64).cuda()
        return torch.zeros(16, 128, dtype=torch.int64).cuda(), torch.zeros(16, 128, dtype=torch.int64).cuda()

    def loss(self, x, y):
        with torch.autocast("cuda", torch.float16, enabled=self.kind == "amp"):
            return F.cross_entropy(self.model(x).flatten(0, -2), y.flatten())

    def purposes(self, inputs=(), saved={}):
        """Returns the bytes of blocks by purpose, and adds storages that autograd has saved under "saved", with their modules."""
        seen, sums = set(), {}
        blocks = {b["address"]: b["size"] for s in torch.cuda.memory._snapshot()["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}

        def add(purpose, storages):
            sums.setdefault(purpose, 0)
            for address in storages:
                if address and address not in seen:
                    seen.add(address)
                    sums[purpose] += blocks[address]

        def of(tensors):
            return [t.untyped_storage().data_ptr() for t in tensors if t is not None and t.is_cuda]

        add("weights", of(self.model.parameters()))
        add("gradients", of(p.grad for p in self.model.parameters()))
        add("state", of(v for s in self.optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)))
        add("buffers", of(self.model.buffers()))
        add("inputs", of(inputs))
        modules = {}
        for address in set(saved) - seen - {0}:
            modules[saved[address]] = modules.get(saved[address], 0) + blocks[address]
        add("saved", saved)
        return sums | dict(modules=modules)

    def saves(self):
        """Returns what a step saves for its backward pass, as saved_tensors_hooks of torch.autograd see it."""
        saved, called = {}, [""]

        def keep(tensor):
            if tensor.is_cuda:
                saved.setdefault(tensor.untyped_storage().data_ptr(), called[-1])
            return tensor.detach()  # an output that the graph kept would keep the graph

        x, y = self.batch()
        called_by = []
        for name, module in self.model.named_modules(prefix="training.model"):
            called_by.append(module.register_forward_pre_hook(lambda *_, name=name: called.append(name)))
            called_by.append(module.register_forward_hook(lambda *_: called.pop() and None))
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = self.loss(x, y)
        for registered in called_by:
            registered.remove()
        return self.purposes((x, y), saved)

    def report(self, name, inputs=(), saved=0, purposes=None, modules={}):
        sums = purposes or self.purposes(inputs) | dict(saved=saved)
        sums.pop("modules", None)
        device = dict(device=0, allocated=torch.cuda.max_memory_allocated() if name == "peak" else torch.cuda.memory_allocated(), reserved=torch.cuda.memory_reserved())
        print(json.dumps(dict(point=name, step=0, pid=os.getpid(), devices=[device], purposes=sums, modules=modules)), flush=True)
        if jobs.point.wait:
            jobs.point.wait = sys.stdin.readline() != ""

    def step(self, point=False, peak=None):
        saved = self.saves() if point else {}
        x, y = self.batch()
        with peak.saved() if peak else contextlib.nullcontext():
            loss = self.loss(x, y)
        if peak:
            peak.mark(self, (x, y))
        if point:
            self.report("forward", (x, y), saved["saved"], modules=saved["modules"])
        self.scaler.scale(loss).backward()
        if peak:
            peak.mark(self, (x, y))
        if point:
            self.report("backward", (x, y))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if peak:
            peak.mark(self, (x, y))
        self.optimizer.zero_grad()


class Peak:
    """Finds out what was allocated at the peak, and what for. A block is an address and how many allocations there were before it."""

    def __init__(self):
        torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=1 << 22)
        self.marks, self.storages = {}, set()

    def saved(self):
        def keep(tensor):
            if tensor.is_cuda:
                self.storages.add(tensor.untyped_storage().data_ptr())
            return tensor.detach()

        return torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)

    def trace(self):
        return torch.cuda.memory._snapshot()["device_traces"][0]

    def mark(self, training, inputs):
        """Notes the purposes of the blocks that live now. What was saved in this step lives at least until its backward pass."""
        snapshot = torch.cuda.memory._snapshot()
        sizes = {b["address"]: b["size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
        purposes = dict(
            weights=training.model.parameters(), gradients=(p.grad for p in training.model.parameters()), buffers=training.model.buffers(),
            state=(v for s in training.optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)), inputs=inputs)
        of = {}
        for purpose, tensors in purposes.items():
            for t in tensors:
                if t is not None and t.is_cuda:
                    of.setdefault(t.untyped_storage().data_ptr(), purpose)
        for address in self.storages:
            of.setdefault(address, "saved")
        self.storages = set()
        births = {}
        for i, e in enumerate(snapshot["device_traces"][0]):
            if e["action"] == "alloc":
                births[e["addr"]] = i
        for address, purpose in of.items():
            if address in sizes:
                self.marks.setdefault((address, births[address]), (purpose, sizes[address]))

    def purposes(self):
        live, now, most, at, best = {}, 0, 0, 0, {}
        for i, e in enumerate(self.trace()):
            if e["action"] == "alloc":
                size = self.marks.get((e["addr"], i), (None, -(-e["size"] // 512) * 512))[1]
                live[e["addr"]] = i, size
                now += size
                if now > most:
                    most, best = now, dict(live)
            elif e["action"] == "free_requested":
                now -= live.pop(e["addr"])[1]
        sums = {}
        for address, (i, size) in best.items():
            purpose = self.marks.get((address, i), ("other", 0))[0]
            sums[purpose] = sums.get(purpose, 0) + size
        return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("transformer", "cnn", "lora", "amp"))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--peak", action="store_true")
    options = jobs.arguments(parser)
    peak = Peak() if options.peak else None
    training = Training(options.kind)
    for n in range(options.steps):
        training.step(peak=peak)
        if peak and n == 0:
            training.report("warm")
    if peak:
        training.report("peak", purposes=peak.purposes())
        return
    training.report("trained")
    training.step(True)
    training.report("end")


if __name__ == "__main__":
    main()
