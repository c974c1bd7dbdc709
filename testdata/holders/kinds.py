# SPDX-License-Identifier: Apache-2.0
"""Keeps tensors in many ways, one storage and one size each. Writes to the file that argv[1] names, as JSON: for
each storage its address, bytes and the path that keeps it ("LINE" stands for line numbers); what the collector sees;
the blocks of the allocator. Prints "ready PID" and waits for its input to end. Without CUDA it uses the CPU."""
import collections, concurrent.futures, contextvars, copy, dataclasses, enum, functools, gc, heapq, io, itertools, json, os, queue
import sys, threading, traceback, types, weakref
import torch
import torch.nn as nn
import torch.utils.checkpoint

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
truth = {}  # address: [bytes, path]


def new(path=None, n=1):
    t = torch.empty(int(n * 4096) + 128 * (len(truth) % 31), device=DEVICE)
    return mark(t, path) if path else t


def mark(t, path):
    s = t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()
    truth[s.data_ptr()] = [s.nbytes(), path]
    return t


# Models, optimizers, graphs.
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scratch", torch.zeros(2 * width), persistent=False)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(x)))


class Model(nn.Module):
    def __init__(self, width=64, depth=3):
        super().__init__()
        self.layers = nn.ModuleList([Block(width) for _ in range(depth)])
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 8), "b": nn.Linear(width, 8)})
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(2)])
        self.lonely = nn.Parameter(torch.ones(width))
        self.outputs = []

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.heads["a"](x * self.lonely * self.scales[0]).sum() + self.heads["b"](x * self.scales[1]).sum()


def mark_module(module, name):
    for n, p in module.named_parameters():
        mark(p, name + "." + n)
        if p.grad is not None:
            mark(p.grad, name + "." + n + ".grad")
    for n, b in module.named_buffers():
        mark(b, name + "." + n)


def watch_steps(optimizer, before):
    optimizer.register_step_post_hook(lambda *arguments: before)


def train():
    global model, optimizer, average, batch, plain_sgd, other
    model = Model().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = mark(torch.ones(16, 64, device=DEVICE), "batch")
    for _ in range(3):
        optimizer.zero_grad()
        model(batch).backward()
        optimizer.step()
    average = copy.deepcopy(model)
    other = nn.Linear(48, 48).to(DEVICE)
    plain_sgd = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    other(torch.ones(4, 48, device=DEVICE)).sum().backward()
    plain_sgd.step()
    if hasattr(plain_sgd, "register_step_post_hook"):
        watch_steps(plain_sgd, mark(torch.ones(40, 48, device=DEVICE), "plain_sgd._optimizer_step_post_hooks[*].<closure before>"))
    mark_module(model, "model")
    mark_module(other, "other")
    mark_module(average, "average")
    for state in optimizer.state.values():
        for key, value in state.items():
            if torch.is_tensor(value) and value.device.type == DEVICE:
                mark(value, "optimizer.state[*]['%s']" % key)
    for state in plain_sgd.state.values():
        mark(state["momentum_buffer"], "plain_sgd.state[*]['momentum_buffer']")


def remember(module, inputs, output):
    seen.append(mark(output.detach().clone(), "seen[*]"))


def keep_graphs():
    handle = model.layers[1].register_forward_hook(remember)
    for _ in range(4):
        hidden = model.layers[0](batch)
        mark(hidden, "losses[*] (autograd graph)")
        losses.append(mark(model.layers[1](hidden).square().sum(), "losses[*]"))
    handle.remove()


def script():
    global scripted
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Linear(72, 72)), file)
    file.seek(0)
    scripted = torch.jit.load(file, map_location=DEVICE)
    for p in scripted.parameters():
        mark(p, "scripted._c")


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(mark(x * 2, "custom.<ctx> (autograd graph)"))
        ctx.extra = new("custom.<ctx>.extra (autograd graph)")
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g


def graphs():
    global custom, function_only, retained, checkpointed, hooked, packed, view
    custom = mark(Double.apply(model.lonely), "custom")
    x = mark(torch.ones(40, 40, device=DEVICE, requires_grad=True), "function_only (autograd graph)")
    function_only = (x * mark(x.detach() + 1, "function_only (autograd graph)")).grad_fn
    retained = mark(other(torch.ones(4, 48, device=DEVICE)), "retained")
    retained.retain_grad()
    (retained * 2).sum().backward()
    mark(retained.grad, "retained.grad")
    given = mark(torch.ones(4, 48, device=DEVICE, requires_grad=True), "checkpointed (autograd graph)")
    checkpointed = mark(torch.utils.checkpoint.checkpoint(other, given, use_reentrant=False), "checkpointed")
    hooked = mark(torch.ones(50, device=DEVICE, requires_grad=True), "hooked")
    caught = new("hooked._backward_hooks[*].<closure caught>")
    hooked.register_hook(lambda g: g if caught is None else None)
    vault = []

    def pack(t):
        vault.append(mark(t.detach().clone(), "packed.<hook> (autograd graph)"))
        return vault[-1]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        packed = mark(hooked * hooked, "packed")
    whole = mark(torch.ones(64, 64, device=DEVICE), "view")
    view = whole[3:5]


# Containers.
Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Data:
    held: object
    more: list


class Slots:
    __slots__ = ("one", "payload")


class Trainer:
    shared = new("Trainer.shared")
    registry = {"x": new("Trainer.registry['x']")}

    def __init__(self, name):
        self.name, self.history, self.count = name, [], 0
        self.best = {}

    def step(self, path):
        self.history.append(new(path))

    @staticmethod
    def helper(default=new("Trainer.helper.__func__.__defaults__[0]")):
        return default


class Crowded:
    def __init__(self):
        for i in range(40):
            setattr(self, "field%d" % i, i)
        self.held = new("crowded.held")


class Meta(type):
    def __init__(cls, name, bases, body):
        super().__init__(name, bases, body)
        cls.table = [new("Made.table[*]")]


class Made(metaclass=Meta):
    pass


class Color(enum.Enum):
    RED = new("Color.RED._value_")


class Special(nn.Parameter):
    pass


class Tagged(torch.Tensor):
    pass


class Names(dict):
    pass


class Failure(Exception):
    pass


losses, seen = [], []
cache = {"k": {"v": new("cache['k']['v']")}, ("t", 1): new("cache[*]")}
a_list = [new("a_list[*]") for _ in range(5)]
a_tuple = (0, new("a_tuple[1]"))
a_pair = Pair(1, new("a_pair[1]"))
a_set = {new("a_set[*]")}
a_frozenset = frozenset([new("a_frozenset[*]")])
a_deque = collections.deque((new("a_deque[*]") for _ in range(150)), maxlen=150)
ordered = collections.OrderedDict((i, new("ordered[*]")) for i in range(3))
default = collections.defaultdict(list)
default["loss"].append(new("default['loss'][*]"))
counter = collections.Counter()
counter[new("counter.keys()")] += 1
user = collections.UserDict(a=new("user.data['a']"))
chained = collections.ChainMap({}, {"a": new("chained.maps[*]['a']")})
proxy = types.MappingProxyType({"a": new("proxy.<dict>['a']")})
space = types.SimpleNamespace(a=new("space.a"))
data = Data(new("data.held"), [new("data.more[*]")])
slots = Slots()
slots.payload = new("slots.payload")
trainer = Trainer("t")
for _ in range(6):
    trainer.step("trainer.history[*]")
trainer.best["loss"] = new("trainer.best['loss']")
names = Names(a=new("names['a']"))
names.extra = new("names.extra")
nested = {"cfg": [{"w": (new("nested['cfg'][*]['w'][0]"), 3)}]}
crowded = Crowded()
shared_by_views = mark(new(n=8), "shared_by_views")
shared_by_views.parts = [shared_by_views[i * 100:(i + 1) * 100] for i in range(5)]
heap = []
for i in range(3):
    heapq.heappush(heap, (i, new("heap[*][1]")))
fifo = queue.Queue()
fifo.put(new("fifo.queue[*]"))
simple = queue.SimpleQueue()
future = concurrent.futures.Future()
future.set_result(new("future._result"))
variable = contextvars.ContextVar("variable")
weak_keys = weakref.WeakKeyDictionary()
weak_keys[trainer] = new("weak_keys.data[*]")
iterator = iter([new("iterator.<list>[*]")])
zipped = zip([new("zipped.<tuple>[0].<list>[*]")])
repeated = itertools.repeat(new("repeated.<Tensor>"))
partial = functools.partial(max, new("partial.args[0]"), key=new("partial.keywords['key']"))
bound = Trainer("bound").step
bound.__self__.best = new("bound.__self__.best")
special = mark(Special(new().view(-1)), "special")
tagged = mark(new().as_subclass(Tagged), "tagged")
tagged.extra = new("tagged.extra")
plain = new("plain")
plain.note = new("plain.note")
views = [v for v in mark(new(n=8), "views[*]").split(1024)]
sparse = torch.sparse_coo_tensor(mark(torch.zeros(2, 300, dtype=torch.long, device=DEVICE), "sparse"),
                                 mark(torch.ones(300, device=DEVICE), "sparse"), (500, 500), check_invariants=False) \
    if DEVICE == "cuda" else None
storage = mark(new(), "storage").untyped_storage() if hasattr(plain, "untyped_storage") else None
module_of_own = types.ModuleType("settings")
module_of_own.__file__ = "settings.py"
module_of_own.table = {"a": new("settings.table['a']")}
sys.modules["settings"] = module_of_own
del module_of_own


def enclosing(name):
    inside = new(name + ".<closure inside>")
    return lambda: inside


def with_default(t=new("with_default.__defaults__[0]"), *, u=new("with_default.__kwdefaults__['u']")):
    return t, u


with_default.note = new("with_default.note")
decorated = functools.wraps(with_default)(enclosing("decorated"))
decorated.mine = new("decorated.mine")


@functools.lru_cache(maxsize=None)
def cached(n):
    return new("cached.cache[*]")


@functools.lru_cache(maxsize=4)
def bounded(n):
    return new("bounded.cache[*]")


def generate():
    waiting = new("generator.<local waiting of generate()>")
    yield waiting


async def stream():
    flowing = new("agen.<local flowing of stream()>")
    yield flowing


class Once:
    def __await__(self):
        yield


async def suspend():
    awaited = new("coroutine.<local awaited of suspend()>")
    await Once()
    return awaited


class Watched:
    pass


def watch():
    told = new("watcher.__callback__.<closure told>")
    return weakref.ref(watched, lambda r: told)


class Cyclic:
    pass


class Partner:
    pass


def garbage():
    c = Cyclic()
    c.partner = Partner()
    c.partner.back = c
    c.held = new("cycle of Cyclic, Partner.held")


class Lonely:
    pass


def lonely_garbage():
    c = Lonely()
    c.me, c.held = c, new("cycle of Lonely.held")


def fails():
    lost = new("error.__traceback__.<local lost of fails()>")
    raise Failure(new("error.args[0]"))


def in_thread():
    own = new('local "own" of in_thread() (kinds.py:LINE)')
    started.set()
    stop.wait()
    return own


def evaluate():
    outs = [new('local "outs"[*] of evaluate() (kinds.py:LINE)') for _ in range(3)]
    large = new('local "large" of evaluate() (kinds.py:LINE)', 20)
    fresh = Trainer("local")
    fresh.step('local "fresh".history[*] of evaluate() (kinds.py:LINE)')
    net = Block(24).to(DEVICE)
    mark_module(net, 'local "net"')
    for address, (n, path) in list(truth.items()):
        if path.startswith('local "net".'):
            truth[address] = [n, path + " of evaluate() (kinds.py:LINE)"]

    def inner(argument):
        using = new('local "using" of evaluate.<locals>.inner() (kinds.py:LINE)')
        report()
        print("ready", os.getpid(), flush=True)
        sys.stdin.read()
        return using, argument, outs
    inner(new('local "argument" of evaluate.<locals>.inner() (kinds.py:LINE)'))
    return large, fresh, net


def report():
    gc_view = {}
    for o in gc.get_objects():
        try:
            if isinstance(o, torch.Tensor) and o.device.type == DEVICE and o.layout == torch.strided:
                s = o.untyped_storage() if hasattr(o, "untyped_storage") else o.storage()
                gc_view[s.data_ptr()] = s.nbytes()
        except Exception:
            pass
    blocks = []
    if DEVICE == "cuda":
        blocks = [[b["address"], b["size"]] for g in torch.cuda.memory_snapshot() for b in g["blocks"] if b["state"] == "active_allocated"]
    json.dump({"device": DEVICE, "torch": torch.__version__, "truth": [[a, n, p] for a, (n, p) in truth.items() if a],
               "collector": [[a, n] for a, n in gc_view.items() if a], "blocks": blocks, "objects": len(gc.get_objects())}, open(sys.argv[1], "w"))


train()
keep_graphs()
script()
graphs()
closure, generator, coroutine = enclosing("closure"), generate(), suspend()
next(generator)
coroutine.send(None)
agen = stream()
try:
    agen.asend(None).send(None)
except StopIteration:
    pass
cached(1), bounded(1)
watched = Watched()
watcher = watch()
try:
    fails()
except Failure as e:
    error = e
try:
    raise Failure
except Failure as e:
    sys.last_value = e
    e.kept = new("sys.last_value.kept")
local = threading.local()
local.a = new("local.a")
variable.set(new("variable.<Tensor>"))
simple.put(new("simple[*]"))
started, stop = threading.Event(), threading.Event()
thread = threading.Thread(target=in_thread, daemon=True)
thread.start()
started.wait()
_ = None
gc.collect()
gc.disable()
garbage()
lonely_garbage()
evaluate()
