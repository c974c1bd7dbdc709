# SPDX-License-Identifier: Apache-2.0
"""Shared by the jobs: a small transformer, and points at which a job reports what it holds.

A point is one line of JSON:
    {"point": "step", "step": 3, "pid": 4711,
     "devices": [{"device": 0, "allocated": 1536, "reserved": 2097152, "free": …, "total": …,
                  "older_reserved": …, "older_free": …, "held": 12, "stuck": …, "idle": …,
                  "all_held": 15, "all_stuck": …, "all_idle": …}],
     "pinned": 4096,
     "lines": [{"device": 0, "own": ["jobs.py:105 forward", "train.py:41 step", …],
                "leaf": "linear.py:125 forward", "bytes": 1024, "blocks": 2, "reached": 1}]}
"older_…" is what is left of the segments that existed at mark(), and how much of it is free. Of the
other segments, "held" counts those with tensors and free memory, "stuck" is this memory, and "idle" is
that of segments without tensors; "all_…" are those of all segments. Each mapping of expandable segments
counts as one.
"pinned" is the pinned memory that Python can reach, such as tensors of a DataLoader. Bytes are the
allocator's, which are rounded up. "own" lists the frames in this folder, innermost first; "leaf" is
the innermost frame. Both are empty on threads of the backward pass. A block is reached if a search
of live objects (see reached()) found a tensor in it; the others are workspaces. Lines have names
only with --history, which makes PyTorch record each allocation's Python stack.
"""
import argparse, collections, gc, json, os, sys
import torch, torch.nn as nn

torch.backends.cudnn.enabled = False  # a stub without a version
HERE = os.path.dirname(os.path.abspath(__file__))


def arguments(parser=None, **settings):
    parser = parser or argparse.ArgumentParser(**settings)
    parser.add_argument("--wait", action="store_true", help="read a line of stdin at each point; the end of stdin resumes the job")
    parser.add_argument("--begin", action="store_true", help="add a first point \"begin\": only contexts exist")
    parser.add_argument("--history", action="store_true", help="report the memory held by each line")
    parser.add_argument("--devices", type=int, default=1)
    options = parser.parse_args()
    if options.history:
        torch.cuda.memory._record_memory_history(enabled="state", context="all", stacks="python")
    point.wait, point.devices = options.wait, options.devices
    if options.begin:
        torch.cuda.init()
        point("begin")
    return options


def saved(node, seen, found):
    """Adds the tensors that the graph below a grad_fn keeps for the backward pass."""
    stack = [node]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if not name.startswith("_saved_") and name not in ("variable", "saved_tensors"):
                continue
            try:
                value = getattr(node, name)
            except RuntimeError:  # the backward pass has freed it
                continue
            found += value if isinstance(value, (tuple, list)) else (value,)
        stack += [below for below, _ in node.next_functions]


def reached():
    """Returns {address: storage}: each storage that Python's objects and their graphs hold."""
    tensors, seen = [], set()
    for o in gc.get_objects():
        if issubclass(type(o), torch.Tensor):
            tensors.append(o)
            if o.is_leaf and o.grad is not None:
                tensors.append(o.grad)
            saved(o.grad_fn, seen, tensors)
    storages = (t.untyped_storage() for t in tensors if isinstance(t, torch.Tensor) and t.layout == torch.strided)
    return {s.data_ptr(): s for s in storages if s.nbytes()}


def frame_name(frame):
    return "%s:%d %s" % (os.path.basename(frame["filename"]), frame["line"], frame["name"])


def lines(found):
    sums = collections.defaultdict(lambda: [0, 0, 0])
    for segment in torch.cuda.memory._snapshot()["segments"]:
        for block in segment["blocks"]:
            if block["state"] != "active_allocated":
                continue
            frames = block.get("frames") or []
            own = tuple(frame_name(f) for f in frames if os.path.dirname(f["filename"]) == HERE)
            entry = sums[segment["device"], own, frame_name(frames[0]) if frames else ""]
            entry[0] += block["size"]
            entry[1] += 1
            entry[2] += block["address"] in found
    return [dict(device=d, own=own, leaf=leaf, bytes=b, blocks=n, reached=r) for (d, own, leaf), (b, n, r) in sorted(sums.items())]


def mark():
    """From now on, points report what is left of the segments that exist now."""
    for segment in torch.cuda.memory._snapshot()["segments"]:
        mark.segments.append((segment["device"], segment["address"], segment["address"] + segment["total_size"]))


def older(device):
    """Returns the bytes of segments older than mark(), and how many of them no tensor uses."""
    reserved = free = 0
    for segment in torch.cuda.memory._snapshot()["segments"] if mark.segments else ():
        for block in segment["blocks"]:
            for d, start, end in mark.segments:
                if d == device == segment["device"]:
                    common = max(0, min(end, block["address"] + block["size"]) - max(start, block["address"]))
                    reserved += common
                    free += common if block["state"] == "inactive" else 0
    return reserved, free


def units(segment, all_segments):
    """Yields (bytes, bytes in tensors), unless it is older than mark() and not all are asked for, of what goes back to the driver at once: the segment, or each
    mapping of an expandable one."""
    start, size = segment["address"], segment["total_size"]
    step = size if not segment.get("is_expandable") else 2 << 20 if segment["segment_type"] == "small" else 20 << 20
    for at in range(start, start + size, step):
        end = min(at + step, start + size)
        live = (max(0, min(end, b["address"] + b["size"]) - max(at, b["address"])) for b in segment["blocks"] if b["state"] != "inactive")
        if all_segments or not any(d == segment["device"] and s < end and at < e for d, s, e in mark.segments):
            yield end - at, sum(live)


def stuck(device, all_segments=False):
    """Returns how many units of segments since mark(), or of all, have both tensors and free memory, their
    free bytes, and the bytes of those without tensors."""
    held = free = idle = 0
    for segment in torch.cuda.memory._snapshot()["segments"]:
        for size, live in units(segment, all_segments) if segment["device"] == device else ():
            idle += 0 if live else size
            if 0 < live < size:
                held, free = held + 1, free + size - live
    return held, free, idle


def point(name, step=0):
    found = reached()
    devices = []
    for d in range(point.devices):
        free, total = torch.cuda.mem_get_info(d)
        older_reserved, older_free = older(d)
        held, stuck_bytes, idle = stuck(d)
        all_held, all_stuck, all_idle = stuck(d, True)
        devices.append(dict(device=d, allocated=torch.cuda.memory_allocated(d), reserved=torch.cuda.memory_reserved(d), free=free, total=total,
                            older_reserved=older_reserved, older_free=older_free, held=held, stuck=stuck_bytes, idle=idle, all_held=all_held, all_stuck=all_stuck, all_idle=all_idle))
    pinned = sum(s.nbytes() for s in found.values() if s.device.type == "cpu" and s.is_pinned())
    print(json.dumps(dict(point=name, step=step, pid=os.getpid(), devices=devices, pinned=pinned, lines=lines(found))), flush=True)
    if point.wait:
        point.wait = sys.stdin.readline() != ""


point.wait, point.devices = False, 1
mark.segments = []


class Block(nn.Module):
    def __init__(self, width, heads=8):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.project(self.norm_attention(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_mlp(x))


def transformer(layers, width):
    return nn.Sequential(*[Block(width) for _ in range(layers)])
