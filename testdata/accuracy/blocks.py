#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""blocks.py TRUTH SEED POINTS WALKS DEPTH: trains a small transformer and allocates tensors in
random walks through walk.py's call styles. At each of POINTS points, it writes PyTorch's own
record of every live block and segment to the file TRUTH, one per line (see state())."""
import argparse, json, os, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "realtorch"))
import torch
import jobs, walk

SIZES = [600, 5000, 40_000, 300_000, 1_200_000, 9_000_000]


def give(w):
    w.live.pop(w.random.randrange(len(w.live)))


def take(w):
    while len(w.live) > 300 or w.live and w.random.random() < 0.3:
        give(w)
    n, way = w.random.choice(SIZES) + w.random.randrange(500), w.random.randrange(6)
    if way == 0:
        x = torch.empty(n, dtype=torch.uint8, device="cuda")
    elif way == 1:
        x = torch.zeros(n // 4, device="cuda")
    elif way == 2:
        x = torch.cat([
            torch.empty(n // 8, device="cuda"),
            torch.ones(n // 8, device="cuda"),
        ])
    elif way == 3:
        x = torch.nn.functional.relu(
            torch.empty(n // 4, device="cuda")
        )
    elif way == 4:
        x = torch.empty(n // 4, dtype=torch.float32).to("cuda").clone()
    else:
        x = torch.nn.Linear(64, n // 256).cuda()
    w.live.append(x)
    return 1


walk.take, walk.give, walk.thread_begins = take, give, lambda: None


def state(out):
    """Returns ["time", NS], ["stack", NUMBER, [[FUNCTION, FILE, LINE], …]],
    ["block", DEVICE, ADDRESS, SIZE, STACK], ["segment", DEVICE, ADDRESS, SIZE],
    ["totals", ALLOCATED, RESERVED], all of one moment."""
    torch.cuda.synchronize()
    snapshot = torch.cuda.memory._snapshot()
    stacks = {}
    for segment in snapshot["segments"]:
        print(json.dumps(["segment", segment["device"], segment["address"], segment["total_size"]]), file=out)
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                frames = tuple((f["name"], os.path.basename(f["filename"]), f["line"]) for f in block.get("frames") or ())
                number = stacks.setdefault(frames, len(stacks))
                print(json.dumps(["block", segment["device"], block["address"], block["size"], number]), file=out)
    for frames, number in stacks.items():
        print(json.dumps(["stack", number, frames]), file=out)
    print(json.dumps(["totals", torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]), file=out)
    time.sleep(1.5)  # totals are read once per second
    print(json.dumps(["time", time.monotonic_ns()]), file=out, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("truth")
    for name in ("seed", "points", "walks", "depth"):
        parser.add_argument(name, type=int)
    options = jobs.arguments(parser)
    w = walk.Walk(options.seed)
    model = jobs.transformer(3, 128).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    with open(options.truth, "w") as out:
        for _ in range(options.points):
            for i in range(options.walks):
                w.left = w.random.randrange(options.depth)
                walk.go(w)
                if i % 20 == 0:
                    loss = model(torch.empty(4 + w.random.randrange(4), 64, 128, device="cuda")).square().mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    kept = [loss] + kept[:w.random.randrange(8)]
                    time.sleep(0.01)
            state(out)
    jobs.point("end")


if __name__ == "__main__":
    main()
