# SPDX-License-Identifier: Apache-2.0
"""Dead weight of each kind, and a twin of each that is none. Writes to argv[1], as JSON, what could be freed by kind and
path, then waits until its input ends. With "twins" as argv[2], it makes the twins alone."""
import json, sys
import torch
import torch.nn as nn

KiB, dead = 1 << 10, len(sys.argv) < 3 or sys.argv[2] != "twins"
truth = []


def empty(*shape):
    return torch.empty(*shape, device="cuda")


def tell(kind, path, bytes):
    truth.append({"kind": kind, "holder": path, "bytes": bytes})


class Store:
    pass


store = Store()
# Views: the class token of each output keeps all 197 tokens; twins are whole, halves of which both are kept, and copies.
store.tokens, store.scaled = [], []
if dead:
    with torch.inference_mode():
        for _ in range(8):
            store.tokens.append(empty(32, 197, 16)[:, 0])
    tell("views", "store.tokens[*]", 8 * (32 * 197 * 16 * 4 - 32 * 16 * 4))
    store.scaled = [(empty(64, 64, 16) * 2)[3] for _ in range(4)]  # not in inference mode: a view knows its base
    tell("views", "store.scaled[*]", 4 * (64 * 64 * 16 * 4 - 64 * 16 * 4))
store.halves = [half for _ in range(4) for half in empty(2, 64, 64).unbind(0)]
store.copies = [empty(32, 197, 16)[:, 0].clone() for _ in range(8)]
store.wide = [empty(1, 4096).expand(64, 4096) for _ in range(4)]
store.base = empty(64, 64, 16)
store.slice = store.base[0]
store.flat = empty(8, 8, 8, 8, 8, 2).flatten()

# Gradients of frozen parameters; the twin is trained.
backbone, head = nn.Linear(64, 128, bias=False).cuda(), nn.Linear(128, 32, bias=False).cuda()
extra = [nn.Linear(32, 32, bias=False).cuda() for _ in range(3)]
y = head(backbone(empty(4, 64)))
for layer in extra:
    y = layer(y)
loss = y.square().mean()
loss.backward()
kept_graph = y  # tensors that functions made
if dead:
    backbone.requires_grad_(False)
    tell("frozen", "backbone.weight.grad", 64 * 128 * 4)
frozen_from_the_start = nn.Linear(64, 64, bias=False).cuda().requires_grad_(False)


# Parameters that only an optimizer keeps, with its state; the twin's model is there.
def trained(width):
    model = nn.Linear(width, width, bias=False).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model(empty(4, width)).square().mean().backward()
    optimizer.step()
    return model, optimizer


twin_model, twin_optimizer = trained(48)
if dead:
    _, old_optimizer = trained(96)
    del _
    tell("gone", "old_optimizer", 3 * 96 * 96 * 4)


# What only the last error keeps; the twin is kept elsewhere, too.
def fails(n, also):
    local = empty(n, 1024)
    if also is not None:
        also.append(local)
    raise ValueError("too large")


survivors = []
try:
    fails(16, survivors)
except ValueError as e:
    twin_error = e
if dead:
    try:
        fails(24, None)
    except ValueError as e:
        sys.last_value = e
    tell("errors", "local \"local\" of fails() (waste.py:73), which an error ended", 24 * KiB * 4)

with open(sys.argv[1], "w") as f:
    json.dump(truth, f)
print("ready", flush=True)
sys.stdin.read()
