# SPDX-License-Identifier: Apache-2.0
"""whatif.py JOB [--steps N] [--snapshot FILE] [--empty N] [--fraction F]: runs a job, and prints what its
allocator did as a line of JSON. whatif.py serve runs each job that a line of stdin asks for,
{"args": [...], "env": {...}}, in a process forked after the import, which takes most of the time. --snapshot records PyTorch's memory history from the begin and writes it to
FILE. --empty calls torch.cuda.empty_cache() after each N-th step. Tests compare what whatif says about one run
with what another run does. Each job is the same in each run: sizes follow from a seed."""
import argparse
import itertools
import json
import os
import random
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.checkpoint import checkpoint

import jobs

keep = []  # what a job holds until its end


def steps(default):
    yield from range(options.steps or default)


def tensor(mib, **how):
    return torch.empty(int(mib * (1 << 20)), dtype=torch.uint8, device="cuda", **how)


def update(optimizer, loss):
    """Ends a step: optimizer.step() is its last allocation."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def plain():
    net = jobs.transformer(8, 256).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in steps(8):
        update(optimizer, net(torch.zeros(16, 96, 256, device="cuda")).square().mean())


def vary():
    net = jobs.transformer(6, 256).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in steps(20):
        x = torch.zeros(dice.choice((2, 4, 8, 16)), dice.randrange(32, 300, 8), 256, device="cuda")
        update(optimizer, net(x).square().mean())


def amp():
    net, scaler = jobs.transformer(6, 256).cuda(), torch.amp.GradScaler("cuda")
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in steps(16):
        with torch.autocast("cuda", torch.float16):
            loss = net(torch.zeros(8, dice.randrange(32, 300, 4), 256, device="cuda")).float().square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        optimizer.step()
        scaler.update()


def checkpointed():
    net = jobs.transformer(8, 256).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in steps(14):
        x = torch.zeros(dice.choice((4, 8, 16)), dice.randrange(32, 300, 8), 256, device="cuda", requires_grad=True)
        for block in net:
            x = checkpoint(block, x, use_reentrant=False)
        update(optimizer, x.square().mean())


def lora():
    """A frozen base with adapters, evaluated now and then."""
    net = jobs.transformer(10, 384).cuda().requires_grad_(False)
    down = nn.ModuleList(nn.Linear(384, 8) for _ in net).cuda()
    up = nn.ModuleList(nn.Linear(8, 384) for _ in net).cuda()
    optimizer = torch.optim.AdamW([*down.parameters(), *up.parameters()])

    def forward(x):
        for block, d, u in zip(net, down, up):
            x = block(x) + u(d(x))
        return x.square().mean()

    for i in steps(12):
        update(optimizer, forward(torch.zeros(4, dice.randrange(64, 400, 8), 384, device="cuda")))
        if i % 4 == 3:
            with torch.no_grad():
                keep.append(forward(torch.zeros(12, 300, 384, device="cuda")))


def language():
    """Sizes of a language model: logits are its largest tensors."""
    width, words = 256, 8000
    embedding, net, head = nn.Embedding(words, width).cuda(), jobs.transformer(4, width).cuda(), nn.Linear(width, words).cuda()
    optimizer = torch.optim.AdamW([*embedding.parameters(), *net.parameters(), *head.parameters()])
    for i in steps(24):
        x = torch.zeros(dice.choice((2, 4, 6)), dice.randrange(64, 500, 8), dtype=torch.long, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(head(net(embedding(x))).flatten(0, 1).float(), x.flatten())
        keep.append(loss.detach())
        update(optimizer, loss)


def streams():
    """Prefetches on a side stream with record_stream, and hands results to a third."""
    net = jobs.transformer(4, 256).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    side, third = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in steps(20):
        with torch.cuda.stream(side):
            x = torch.empty(dice.choice((2, 3, 5, 8)), dice.randrange(64, 400, 16), 256, device="cuda")
            extra = tensor(dice.randrange(1, 30))
        x.record_stream(torch.cuda.current_stream())
        extra.record_stream(third)
        y = net(x)
        y.record_stream(third)
        with torch.cuda.stream(third):
            z = y.float() * 2
        z.record_stream(torch.cuda.current_stream())
        loss = y.square().mean()
        del x, extra
        update(optimizer, loss)


def pools():
    """Graphs and pools of their own beside the default pool."""
    mine = [torch.cuda.MemPool() for _ in range(2)]
    keep.extend(mine)
    for i in steps(8):
        with torch.cuda.use_mem_pool(mine[i % 2]):
            inside = [tensor(dice.randrange(1, 24)) for _ in range(4)]
            keep.append(inside[0])
        outside = [tensor(dice.randrange(1, 24)) for _ in range(6)]
        keep.append(outside[::3])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = [tensor(dice.randrange(1, 12)) for _ in range(5)]
            del held[1::2]
        keep.append((graph, held))
        del inside, outside, held


def fragments():
    """Keeps a small tensor in each segment of a step's activations, then evaluates with larger ones."""
    for _ in steps(6):
        layers = [tensor(dice.randrange(3, 18)) for _ in range(24)]
        keep.append([x[:1 << 20].clone() for x in layers[::4]])
    del layers
    for _ in range(4):
        keep.append(tensor(40))


def empties():
    """Calls empty_cache itself, where it pleases."""
    for i in steps(40):
        layers = [tensor(dice.choice((3, 5, 7, 9, 11, 14, 24))) for _ in range(12)]
        keep.append(layers[i % 12])
        if i % 5 == 4:
            del keep[: len(keep) // 2]
        del layers
        if i % 7 == 6:
            torch.cuda.empty_cache()


def accumulate():
    """Adds up gradients over micro batches of different sizes; a cache grows."""
    net = jobs.transformer(6, 256).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for i in steps(10):
        optimizer.zero_grad()
        for _ in range(4):
            net(torch.zeros(dice.randrange(2, 9), 128, 256, device="cuda")).square().mean().backward()
        keep.append(tensor(dice.randrange(1, 9)))
        optimizer.step()


def generate():
    """Grows a cache of keys and values by concatenation, as many requests at once."""
    for _ in steps(12):
        caches = [torch.empty(1, dice.randrange(64, 512), 2048, device="cuda") for _ in range(6)]
        for _ in range(30):
            i = dice.randrange(len(caches))
            caches[i] = torch.cat([caches[i], torch.empty(1, dice.choice((1, 1, 16)), 2048, device="cuda")], 1)


def run(args):
    global options, dice
    parser = argparse.ArgumentParser()
    parser.add_argument("job")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--snapshot")
    parser.add_argument("--empty", type=int, default=0)
    parser.add_argument("--fraction", type=float, default=0)
    options = parser.parse_args(args)
    dice = random.Random(options.job)
    if options.empty:
        counts = itertools.count(1)
        register_optimizer_step_post_hook(lambda *_: next(counts) % options.empty or torch.cuda.empty_cache())
    if options.fraction:
        torch.cuda.set_per_process_memory_fraction(options.fraction, 0)
    if options.snapshot:
        torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks="python", max_entries=10**8)
    error = None
    try:
        globals()[options.job]()
    except torch.OutOfMemoryError as e:
        error = str(e).split(". ")[0]
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats(0)
    free, total = torch.cuda.mem_get_info(0)
    if options.snapshot:
        torch.cuda.memory._dump_snapshot(options.snapshot)
    print(json.dumps({
        "reserved": stats.get("reserved_bytes.all.peak", 0), "allocated": stats.get("allocated_bytes.all.peak", 0),
        "end": stats.get("reserved_bytes.all.current", 0), "retries": stats.get("num_alloc_retries", 0), "ooms": stats.get("num_ooms", 0),
        "allocations": stats.get("allocation.all.allocated", 0), "total": total,
        "capacity": free + stats.get("reserved_bytes.all.current", 0), "error": error,
    }), flush=True)


def serve():
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.environ.update(asked["env"])
            try:
                run(asked["args"])
            except BaseException as e:
                print(json.dumps({"failed": repr(e)}), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)


if sys.argv[1:] == ["serve"]:
    serve()
else:
    run(sys.argv[1:])
