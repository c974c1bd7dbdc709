#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Has memory whose purpose no class of PyTorch shows, and prints what it is for, as purpose.py does.

Points: "leaves" (plain tensors that a loop trains by hand, within a step), "optimized" (plain tensors of optimizers: a picture that
LBFGS changes, 32-bit copies of half-precision weights), "kept" (states of sessions and of a search, which no optimizer has, and a model
on the device meta, which has no memory), "scripted" (models of TorchScript, of which Python has no parameter)."""
import argparse, io, json, os, sys
import torch, torch.nn as nn
import jobs


def report(name, purposes):
    """Prints the bytes of blocks by purpose, each once and in the first purpose that applies."""
    blocks = {b["address"]: b["size"] for s in torch.cuda.memory._snapshot()["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
    sums = dict.fromkeys(("weights", "gradients", "state", "buffers", "saved"), 0)
    for purpose, tensors in purposes.items():
        for address in {t.untyped_storage().data_ptr() for t in tensors if t is not None and t.is_cuda}:
            sums[purpose] += blocks.pop(address, 0)
        del tensors
    del blocks
    say(name, sums)


def say(name, sums):
    device = dict(device=0, allocated=torch.cuda.memory_allocated(), reserved=torch.cuda.memory_reserved())
    print(json.dumps(dict(point=name, step=0, pid=os.getpid(), devices=[device], purposes=sums)), flush=True)
    if jobs.point.wait:
        jobs.point.wait = sys.stdin.readline() != ""


def graph(loss):
    found = []
    jobs.saved(loss.grad_fn, set(), found)
    return [t for t in found if isinstance(t, torch.Tensor)]


def state_of(optimizer):
    for state in optimizer.state.values():
        for value in state.values():
            yield from value if isinstance(value, list) else [value] if isinstance(value, torch.Tensor) else []


def leaves():
    sizes = [64, 500, 300, 10]
    weights = [torch.zeros(a, b, device="cuda", requires_grad=True) for a, b in zip(sizes, sizes[1:])]
    for step in range(2):
        x = torch.zeros(300, 64, device="cuda")
        for w in weights:
            x = torch.tanh(x @ w)
        loss = x.square().mean()
        if step:
            report("leaves", dict(weights=weights, gradients=[w.grad for w in weights], saved=graph(loss)))
        loss.backward()


def optimized():
    features = nn.Sequential(nn.Linear(192, 256), nn.ReLU(), nn.Linear(256, 64)).cuda().requires_grad_(False)
    picture = torch.zeros(500, 192, device="cuda").requires_grad_()
    changes = torch.optim.LBFGS([picture], max_iter=2, tolerance_grad=-1, tolerance_change=-1)

    def closure():
        changes.zero_grad()
        loss = features(picture).square().mean()
        loss.backward()
        return loss

    changes.step(closure)
    model = nn.Linear(700, 300).cuda().half()
    masters = [p.detach().float().requires_grad_() for p in model.parameters()]
    for m in masters:
        m.grad = torch.zeros_like(m)
    adam = torch.optim.Adam(masters)
    adam.step()
    trained = [picture, *masters]
    report("optimized", dict(weights=[*features.parameters(), *model.parameters(), *trained], gradients=[t.grad for t in trained], state=[*state_of(changes), *state_of(adam)]))


class Session:
    pass


class Server(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(64, 512)
        self.state = {Session(): torch.zeros(4, 512, device="cuda") for _ in range(5)}


class SearchOptimizer:
    """Looks for good settings."""

    def __init__(self):
        self.observed, self.kernel = torch.zeros(300, 9, device="cuda"), torch.zeros(300, 300, device="cuda")


def kept():
    server, search = Server().cuda(), SearchOptimizer()
    with torch.device("meta"):
        planned = nn.Linear(50000, 1000)
    report("kept", dict(weights=server.parameters()))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(300, 700), nn.BatchNorm1d(700))
        self.register_buffer("scale", torch.ones(700))

    def forward(self, x):
        return self.layers(x) * self.scale


def scripted():
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(Scaled().eval()), file)
    file.seek(0)
    model = torch.jit.load(file, map_location="cuda")
    twin = Scaled()  # to look at the model's own would make Python objects of them

    def blocks(tensors):
        return sum(-(-t.nbytes // 512) * 512 for t in tensors)

    say("scripted", dict(weights=blocks(twin.parameters()), gradients=0, state=0, buffers=blocks(twin.buffers()), saved=0))


def main():
    jobs.arguments(argparse.ArgumentParser(description=__doc__))
    leaves()
    optimized()
    kept()
    scripted()


if __name__ == "__main__":
    main()
