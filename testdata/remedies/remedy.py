# SPDX-License-Identifier: Apache-2.0
"""Shared by the jobs: options, remedies that are really applied, and what the job took in truth.

A job is a function of a Remedy. run() calls it and prints one line of JSON:
    {"job": "leaking", "remedy": "drop-line", "allocated": …, "reserved": …, "end": …, "failed": false}
"allocated" and "reserved" are PyTorch's own peaks in bytes; "failed" is whether it ran out of memory. With --record,
PyTorch's recorder writes what the allocator was asked for; record() has the format.

With --point N, the job stops before its N-th backward pass: it prints "begin" before it does anything and "read" then, and after a line of
stdin "truth", each as testdata/realtorch/purpose.py does, with the bytes by purpose of its own models, optimizers and graph.

The losses are zeros on the fake CUDA. Sizes and the order of allocations are those of a GPU."""
import argparse, ast, gc, json, os, sys
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

torch.backends.cudnn.enabled = False  # a stub without a version
REMEDIES = ("drop-line", "checkpoint", "set-to-none", "eight-bit", "half", "batch", "shard", "offload")


class Remedy:
    def __init__(self, names, record):
        self.names, self.record = dict(names), record
        self.models, self.optimizers = [], []

    def __getitem__(self, name):
        assert name in REMEDIES, name
        return self.names.get(name)

    # Each method applies one remedy where it was asked for.

    def keep(self, tensor):
        """What the job keeps of a result: the tensor with its graph, or its values on the host."""
        return tensor.detach().cpu() if self["drop-line"] else tensor

    def call(self, module, *arguments):
        """Calls a block, which "checkpoint" recomputes in the backward pass, and whose saved tensors "offload" keeps on the host."""
        if self["checkpoint"] and torch.is_grad_enabled():
            return checkpoint(module, *arguments, use_reentrant=False)
        if self["offload"]:
            with torch.autograd.graph.save_on_cpu():
                return module(*arguments)
        return module(*arguments)

    def model(self, module):
        module = module.cuda()
        self.models.append(module.bfloat16() if self["half"] else module)
        return self.models[-1]

    def input(self, *shape, device="cuda"):
        return torch.empty(*shape, device=device, dtype=torch.bfloat16 if self["half"] else torch.float32)

    def batch(self, size):
        return int(size * float(self["batch"] or 1))

    def adam(self, parameters):
        mine = self.share(parameters := list(parameters))
        return self.all_of(parameters, EightBit(mine, 2) if self["eight-bit"] else torch.optim.AdamW(mine))

    def momentum(self, parameters):
        mine = self.share(parameters := list(parameters))
        return self.all_of(parameters, EightBit(mine, 1) if self["eight-bit"] else torch.optim.SGD(mine, lr=0.1, momentum=0.9))

    def all_of(self, parameters, optimizer):
        """A rank drops the gradients of all parameters, not only of those whose state it has."""
        def zero_grad(set_to_none=True):
            for p in parameters:
                p.grad = None
        if self["shard"]:
            optimizer.zero_grad = zero_grad
        self.optimizers.append(optimizer)
        return optimizer

    def share(self, parameters):
        """The parameters of rank 0, as ZeroRedundancyOptimizer divides them: each, the largest first, to the rank that has least."""
        ranks = int(self["shard"] or 1)
        shares = [[] for _ in range(ranks)]
        sizes = [0] * ranks
        for p in sorted(parameters, key=lambda p: p.numel(), reverse=True):
            rank = sizes.index(min(sizes))
            shares[rank].append(p)
            sizes[rank] += p.numel()
        return shares[0] if ranks > 1 else parameters

    def forget(self, model):
        """With "set-to-none", drops the gradients as soon as the optimizer has used them."""
        if self["set-to-none"]:
            model.zero_grad(set_to_none=True)

    def zero(self, model, set_to_none):
        """The job's own call, which a program so changed no longer has."""
        if not self["set-to-none"]:
            model.zero_grad(set_to_none=set_to_none)


class EightBit(torch.optim.Optimizer):
    """What bitsandbytes' 8-bit optimizers allocate, at the same moments: a byte for each element of a state, a
    32-bit maximum for each 256 of them, and 32-bit states for tensors below 4096 elements. Its kernel needs nothing else."""

    def __init__(self, parameters, states):
        super().__init__(parameters, {})
        self.states, self.maps = states, None

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if self.maps is None:
                    self.maps = [torch.empty(256, device=p.device) for _ in range(self.states)]
                if not self.state[p]:
                    small = p.numel() < 4096
                    for n in range(self.states):
                        self.state[p]["state%d" % n] = torch.zeros_like(p, dtype=torch.float32 if small else torch.uint8)
                    for n in range(0 if small else self.states):
                        self.state[p]["maxima%d" % n] = torch.zeros(-(-p.numel() // 256), device=p.device)
                p.add_(p.grad)


class Block(nn.Module):
    """A block of a transformer: attention, and two linear layers."""

    def __init__(self, width, heads=8, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.project(self.norm_attention(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_mlp(x))


class Language(nn.Module):
    """A small language model."""

    def __init__(self, remedy, layers, width, words=4000, dropout=0.0):
        super().__init__()
        self.remedy = remedy
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, dropout=dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = self.remedy.call(block, x)
        return self.head(self.norm(x))


def tokens(batch, length):
    return torch.zeros(batch, length, dtype=torch.long, device="cuda")


def guess(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Point:
    """Stops the job before a backward pass, and tells then what its memory is for."""

    def __init__(self, remedy, before):
        self.remedy, self.left = remedy, before
        self.backward, torch.Tensor.backward = torch.Tensor.backward, lambda *a, **k: self.call(*a, **k)
        self.say("begin")

    def say(self, name, **more):
        device = dict(device=0, allocated=torch.cuda.memory_allocated(), reserved=torch.cuda.memory_reserved())
        print(json.dumps(dict(point=name, step=0, pid=os.getpid(), devices=[device], **more)), flush=True)
        sys.stdin.readline()

    def call(self, loss, *arguments, **options):
        self.left -= 1
        if self.left == 0:
            self.say("read")
            self.say("truth", purposes=self.purposes())
        return self.backward(loss, *arguments, **options)

    def purposes(self):
        """The bytes of whole blocks by purpose, each block in the first one that applies. Graphs are those of all tensors that Python has."""
        seen, sums = set(), {}
        blocks = {b["address"]: b["size"] for s in torch.cuda.memory._snapshot()["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}

        def add(purpose, tensors):
            sums.setdefault(purpose, 0)
            for t in tensors:
                if isinstance(t, torch.Tensor) and t.is_cuda and (address := t.untyped_storage().data_ptr()) and address not in seen:
                    seen.add(address)
                    sums[purpose] += blocks[address]

        tensors = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
        add("weights", [t for t in tensors if isinstance(t, nn.Parameter)])
        add("gradients", [t.grad for t in tensors if t.is_leaf])
        add("state", (v for o in self.remedy.optimizers for s in o.state.values() for v in s.values()))
        add("buffers", (b for m in self.remedy.models for b in m.buffers()))
        saved, seen_nodes = [], set()
        for t in tensors:
            saved_by(t.grad_fn, seen_nodes, saved)
        add("saved", saved)
        return sums


def saved_by(node, seen, found):
    """Adds the tensors that the graph below a grad_fn keeps for the backward pass."""
    nodes = [node]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_") or name == "saved_tensors":
                try:
                    value = getattr(node, name)
                except RuntimeError:  # a backward pass has freed it
                    continue
                found += value if isinstance(value, (tuple, list)) else (value,)
        nodes += [below for below, _ in node.next_functions]


def run(job):
    p = argparse.ArgumentParser(description=sys.modules[job.__module__].__doc__)
    p.add_argument("--remedy", action="append", default=[], metavar="NAME[=VALUE]", help="what is changed: " + ", ".join(REMEDIES))
    p.add_argument("--point", type=int, metavar="N", help="stop before the N-th backward pass, and print the purposes of memory")
    p.add_argument("--wait", action="store_true", help="without an effect: with --point, the job always waits")
    p.add_argument("--record", metavar="FILE", help="write what the allocator was asked for")
    o = p.parse_args()
    remedy = Remedy([(r.partition("=")[0], r.partition("=")[2] or True) for r in o.remedy], o.record)
    torch.cuda.init()
    empty = Emptied()
    if o.record:
        torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="all", max_entries=10**8)
    if o.point:
        Point(remedy, o.point)
    failed = False
    try:
        job(remedy)
    except torch.OutOfMemoryError:
        failed = True
    torch.cuda.synchronize()
    print(json.dumps(dict(job=os.path.basename(sys.argv[0])[:-3], remedy=" ".join(o.remedy), allocated=torch.cuda.max_memory_allocated(),
                          reserved=torch.cuda.max_memory_reserved(), end=torch.cuda.memory_reserved(), failed=failed)), flush=True)
    if o.record:
        record(o.record, empty.at)
    os._exit(0)  # what the job keeps dies in no order


class Emptied:
    """Notes when the job calls empty_cache(), which PyTorch's recorder does not."""

    def __init__(self):
        self.at, self.call = [], torch.cuda.empty_cache
        torch.cuda.empty_cache = torch.cuda.memory.empty_cache = self

    def __call__(self):
        s = torch.cuda.memory_stats()
        self.at.append((s.get("allocation.all.allocated", 0), s.get("allocation.all.freed", 0)))
        self.call()


class Names:
    """Qualified names of functions by file and line: PyTorch's recorder says "forward" where captures say "Block.forward"."""

    def __init__(self):
        self.files = {}

    def of(self, name, file, line):
        if not file.endswith(".py"):
            return name
        if file not in self.files:
            self.files[file] = []
            with open(file) as text:
                self.visit(ast.parse(text.read()), "", self.files[file])
        inside = [(start, qualified) for start, end, qualified in self.files[file] if start <= line <= end and qualified.rpartition(".")[2] == name]
        return max(inside)[1] if inside else name

    def visit(self, node, prefix, found):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.append((child.lineno, child.end_lineno, prefix + child.name))
                self.visit(child, prefix + child.name + ("." if isinstance(child, ast.ClassDef) else ".<locals>."), found)
            else:
                self.visit(child, prefix, found)


def record(file, emptied):
    """Writes the recorder's trace, a line for each: "v VERSION", "F FUNCTION⇥FILE⇥LINE" (numbered from 0), "S FRAMES" (a stack,
    innermost first), "a BLOCK BYTES STREAM POOL ADDRESS STACK", "f BLOCK" and "c BLOCK" (freed by the program; by all streams), "e" (empty_cache),
    "x BYTES STREAM STACK" (out of memory), "s ADDRESS" (a segment), "r RESERVED"."""
    snapshot, names = torch.cuda.memory._snapshot(0), Names()
    pools, frames, stacks, streams, blocks = {}, {}, {}, {}, {}
    private = [(g["address"], g["address"] + g["total_size"], pools.setdefault(tuple(g["segment_pool_id"]), len(pools) + 1))
               for g in snapshot["segments"] if tuple(g.get("segment_pool_id", (0, 0))) != (0, 0)]
    allocated = freed = reserved = number = 0
    emptied = iter(emptied + [(1 << 60, 1 << 60)])
    next_empty = next(emptied)
    with open(file, "w") as out:
        def stack(entry):
            ids = []
            for f in entry.get("frames", ()):
                name = names.of(f["name"], f["filename"], f["line"])
                key = "%s\t%s\t%d" % (name.replace("\t", " ").replace("\n", " "), f["filename"].replace("\t", " "), f["line"])
                if key not in frames:
                    frames[key] = len(frames)
                    print("F", key, file=out)
                ids.append(frames[key])
            ids = tuple(ids)
            if ids not in stacks:
                stacks[ids] = len(stacks)
                print("S", *ids, file=out)
            return stacks[ids]

        print("v", torch.__version__.split("+")[0], file=out)
        for e in snapshot["device_traces"][0]:
            while (allocated, freed) >= next_empty:
                print("e", file=out)
                next_empty = next(emptied)
            action, address, size, stream = e["action"], e["addr"], e["size"], streams.setdefault(e["stream"], len(streams))
            if action == "alloc":
                pool = next((n for start, end, n in private if start <= address < end), 0)
                blocks[address] = number
                at = stack(e)
                print("a", number, size, stream, pool, address, at, file=out)
                print("r", reserved, file=out)
                number += 1
                allocated += 1
            elif action == "free_requested":
                freed += 1
                print("f", blocks[address], file=out)
            elif action == "free_completed":
                print("c", blocks.pop(address), file=out)
            elif action in ("segment_alloc", "segment_map"):
                reserved += size
                print("s", address, file=out)
            elif action in ("segment_free", "segment_unmap"):
                reserved -= size
            elif action == "oom":
                print("x", size, stream, stack(e), file=out)
