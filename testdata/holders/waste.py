# SPDX-License-Identifier: Apache-2.0
"""Dead weight of each kind, and a twin of each that is none. Writes to argv[1], as JSON, what could be freed by kind and
path, then waits until its input ends. With "twins" as argv[2], it makes the twins alone."""
import asyncio, copy, json, sys, weakref
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

    kept_error = None
    try:
        fails(28, None)
    except ValueError as e:
        kept_error = e
    tell("errors", "kept_error.__traceback__", 28 * KiB * 4)

# Tasks that have ended keep their results, one whose event loop is closed its variables, and the frame of a function that
# has returned those of the function. Twins: a result that is kept elsewhere too, a generator and a task that go on.
async def produce(n):
    await asyncio.sleep(0)
    return empty(n, 1024)


async def wait_for(n, event):
    waits = empty(n, 1024)
    await event.wait()
    return waits


def generate(n):
    waits = empty(n, 1024)
    yield waits.shape
    yield waits


def frame_of(n):
    local = empty(n, 1024)
    return sys._getframe() if local is not None else None


async def run(n):
    task = asyncio.ensure_future(produce(n))
    await task
    return task


twin_loop, twin_tasks = asyncio.new_event_loop(), []
twin_tasks.append(twin_loop.run_until_complete(run(20)))
twin_result = twin_tasks[0].result()
twin_tasks.append(twin_loop.create_task(wait_for(20, asyncio.Event())))
twin_loop.run_until_complete(asyncio.sleep(0))
twin_generator = generate(20)
next(twin_generator)
if dead:
    dead_loop, tasks, stuck = asyncio.new_event_loop(), [], []
    tasks += [dead_loop.run_until_complete(run(40)) for _ in range(3)]
    stuck.append(dead_loop.create_task(wait_for(44, asyncio.Event())))
    dead_loop.run_until_complete(asyncio.sleep(0))
    dead_loop.close()
    kept_frame = frame_of(48)
    tell("ended", "tasks[*]._result", 3 * 40 * KiB * 4)
    tell("ended", "stuck[*]._coro.<local waits of wait_for()>", 44 * KiB * 4)
    tell("ended", "kept_frame.<local local of frame_of()>", 48 * KiB * 4)

# What IPython 8 keeps of each result: its names are the program's. Twin: a variable has it too.
class DisplayHook:
    pass


def result(n, tensor):
    global _, __, _1, _2
    display.__dict__.update(_=tensor, __=getattr(display, "_", None))
    _, __ = display._, display.__dict__["__"]
    _oh[n] = globals()[f"_{n}"] = tensor


display, _oh = DisplayHook(), {}
Out = _oh
if dead:
    result(1, empty(52, 1024))
    result(2, empty(54, 1024))
    tell("errors", "_oh[", (52 + 54) * KiB * 4)
named = empty(56, 1024)
result(3, named)


# A value of a weak dictionary that refers to its own key; the twin's key has another holder.
class Key:
    def __init__(self, tensor):
        self.me, self.tensor = self, tensor


class Value:
    def __init__(self, key, tensor):
        self.key, self.tensor = key, tensor


own_keys, live_keys = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()
for _ in range(3):
    key = Key(None)
    own_keys[key] = Value(key, empty(8, 1024))
del key
live_key = Key(None)
live_keys[live_key] = Value(live_key, empty(8, 1024))
state = empty(64, 64).requires_grad_()
for _ in range(4):
    state = state.sin()


# Copies of a model. No twins: layers of one model, heads of one shape, a module around the same model.
class Around(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module


def network(words):
    blocks = [nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)) for _ in range(3)]
    return nn.Sequential(nn.Embedding(words, 64), *blocks, nn.Linear(64, 10)).cuda()


def tell_copies(path):
    tell("copies", path, 0)


net, other = network(500), network(700)
around = Around(net)
average = Around(copy.deepcopy(net))
checkpoint = {"model": {k: v.clone() for k, v in other.state_dict().items()}, "step": 1}
same_state = other.state_dict()
on_the_host = copy.deepcopy(net).cpu()
tell_copies("net and average.module")
tell_copies("other and checkpoint['model']")

with open(sys.argv[1], "w") as f:
    json.dump(truth, f)
print("ready", flush=True)
sys.stdin.read()
