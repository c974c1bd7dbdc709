#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer. Kernels do nothing, so the loop is as launch-bound as possible.
Lines that tests look for end in "# site: NAME". Points: "model", "step" (after every --every
steps), "end"."""
import argparse, collections, ctypes, os, sys, time
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset
import jobs


class Noise(Dataset):
    def __init__(self, options):
        self.options = options

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.full((self.options.length, self.options.width), float(index))


class Cache:
    """Keeps the latest entries: grows at first, then is constant."""

    def __init__(self, capacity):
        self.capacity, self.entries = capacity, collections.OrderedDict()

    def look_up(self, key, device):
        if key not in self.entries:
            self.entries[key] = torch.empty(64, 1024, device=device)  # site: cache
            if len(self.entries) > self.capacity:
                self.entries.popitem(last=False)
        return self.entries[key]


class Job:
    def __init__(self, options, device):
        self.options, self.device, self.leaked, self.cache = options, device, [], Cache(options.cache)
        self.model = jobs.transformer(options.layers, options.width).to(device)  # site: model
        if options.ddp:
            # Received data reads as zeros, so ranks cannot compare their models, nor agree on new
            # buckets after the first step, which find_unused_parameters forbids.
            torch.nn.parallel.distributed._verify_param_shape_across_processes = lambda *_: None
            self.model = torch.nn.parallel.DistributedDataParallel(self.model, device_ids=[device], find_unused_parameters=True)  # site: buckets
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.batches = None
        if options.loader >= 0:
            self.batches = iter(DataLoader(Noise(options), options.batch, num_workers=options.loader, pin_memory=options.pin))

    def batch(self, step):
        if self.batches:
            return next(self.batches).to(self.device, non_blocking=self.options.pin)  # site: copy
        size = self.options.batch * (1, 3, 2, 4)[step % 4] if self.options.vary else self.options.batch
        return torch.empty(size, self.options.length, self.options.width, device=self.device)  # site: batch

    def forward(self, x):
        if not self.options.checkpoint:
            return self.model(x)
        for block in self.model:
            x = checkpoint(block, x, use_reentrant=False)
        return x

    def step(self, step):
        if self.cache.capacity:
            self.cache.look_up(step, self.device)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.options.amp):
            loss = self.forward(self.batch(step)).square().mean()  # site: loss
        self.optimizer.zero_grad()
        if self.options.leak and step % self.options.leak == 0:
            self.leaked.append(self.forward(self.batch(step)).mean())  # site: leak
        loss.backward()
        self.optimizer.step()  # site: optimizer


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--seconds", type=float, default=0, help="instead of --steps: run for that time and print the number of steps")
    p.add_argument("--warm", type=float, default=0, help="with --seconds: warm-up seconds that are not counted")
    p.add_argument("--every", type=int, default=1, help="steps between points")
    p.add_argument("--sleep", type=float, default=0, help="additional seconds per step, like a busy GPU")
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--length", type=int, default=128)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--vary", action="store_true", help="use another batch size in each step")
    p.add_argument("--leak", type=int, default=0, metavar="N", help="keep a loss with its graph every N steps")
    p.add_argument("--cache", type=int, default=0, metavar="N", help="keep a cache of N entries of 256 KiB")
    p.add_argument("--loader", type=int, default=-1, metavar="WORKERS", help="take batches from a DataLoader")
    p.add_argument("--pin", action="store_true", help="through pinned memory")
    p.add_argument("--checkpoint", action="store_true", help="recompute activations")
    p.add_argument("--amp", action="store_true", help="in bfloat16")
    p.add_argument("--foreign", type=int, default=0, metavar="BYTES", help="bytes that libforeign.so holds beside PyTorch")
    p.add_argument("--ddp", action="store_true", help="run as the rank in RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT")
    p.add_argument("--serve", action="store_true", help="execute commands from stdin, see serve()")
    return jobs.arguments(p)


def allocations():
    return torch.cuda.memory_stats()["allocation.all.allocated"]


def serve(trainers):
    """Executes lines of stdin and answers each with a line "served …" on stdout.

    run SECONDS SLEEP  trains for SECONDS, SLEEP seconds more per step; answers "STEPS SECONDS ALLOCATIONS CPU-SECONDS"
    history STACKS     makes PyTorch record its allocations with stacks "python" or "all", or "off"
    snapshot FILE      writes that history; answers "BYTES SECONDS ENTRIES"
    STEPS and ALLOCATIONS are as the allocator counts them; ENTRIES are the recorded allocations.
    """
    step = 0
    for line in sys.stdin:
        command, *words = line.split()
        if command == "run":
            seconds, sleep = map(float, words)
            before, first, begin, cpu = allocations(), step, time.monotonic(), time.process_time()
            while time.monotonic() - begin < seconds:
                for t in trainers:
                    t.step(step)
                if sleep:
                    time.sleep(sleep)
                step += 1
            answer = step - first, time.monotonic() - begin, allocations() - before, time.process_time() - cpu
        elif command == "history":
            torch.cuda.memory._record_memory_history(**{"enabled": None} if words[0] == "off" else {"stacks": words[0]})
            answer = ()
        elif command == "snapshot":
            begin = time.monotonic()
            torch.cuda.memory._dump_snapshot(words[0])
            seconds = time.monotonic() - begin
            entries = sum(e["action"] == "alloc" for trace in torch.cuda.memory._snapshot()["device_traces"] for e in trace)
            answer = os.path.getsize(words[0]), seconds, entries
        print("served", *answer, flush=True)


def main():
    foreign = ctypes.CDLL("libforeign.so")
    options = parse()
    if options.ddp:
        os.environ["USE_LIBUV"] = "0"  # Debian's build does not support it
        torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", 0))
    if options.foreign:
        torch.cuda.init()
        foreign.foreign_hold.restype, foreign.foreign_hold.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        assert foreign.foreign_hold(options.foreign)  # site: foreign
    trainers = [Job(options, torch.device("cuda", d)) for d in range(options.devices)]
    jobs.point("model")
    if options.serve:
        return serve(trainers)
    begin, step = time.monotonic(), 0
    while time.monotonic() - begin < options.warm:
        for t in trainers:
            t.step(step)
        time.sleep(options.sleep)
        step += 1
    before, begin, step = allocations(), time.monotonic(), 0
    while time.monotonic() - begin < options.seconds if options.seconds else step < options.steps:
        for t in trainers:
            t.step(step)
        if options.sleep:
            time.sleep(options.sleep)
        step += 1
        if not options.seconds and step % options.every == 0:
            jobs.point("step", step)
    seconds = time.monotonic() - begin
    print("%.1f steps/s, %.0f allocations a step" % (step / seconds, (allocations() - before) / max(step, 1)), flush=True)
    jobs.point("end", step)
    if options.ddp:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
