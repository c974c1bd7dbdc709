#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""walk.py TRUTH SEED WALKS THREADS DEPTH PAUSE: random walks through Python's ways to call. Each
walk ends in an allocation, followed by a pause of PAUSE seconds. At the end, it writes the
stacks (as sys._getframe reports them, leaf first) and the allocations to the file TRUTH, one
JSON list per line. It prints "ready" and "done", and waits for a line on stdin each time.

["s", NUMBER, [[FUNCTION, FILE, LINE], …]] ["a", THREAD, BEFORE, AFTER, ADDRESS, SIZE, STACK,
API]     times of the call, ns of CLOCK_MONOTONIC
"""
import ctypes, functools, json, os, random, re, sys, threading, time
from contextlib import contextmanager

sys.setrecursionlimit(5000)
runtime = keeping = driver = None
lock, stacks, allocations = threading.Lock(), {}, []
here = os.path.basename(__file__)


def load():
    global runtime, keeping, driver
    runtime = ctypes.CDLL("libcudart.so.12")  # releases the GIL
    keeping = ctypes.PyDLL("libcudart.so.12")  # keeps the GIL
    driver = ctypes.CDLL("libcuda.so.1")


def thread_begins():
    runtime.cudaSetDevice(0)


class Walk:
    def __init__(self, seed):
        self.random, self.left, self.live = random.Random(seed), 0, []


def stack_of(frame, line):
    found = []
    while frame:
        code = frame.f_code
        found.append((getattr(code, "co_qualname", code.co_name), os.path.basename(code.co_filename), line or frame.f_lineno))
        frame, line = frame.f_back, 0
    return tuple(found)


def thread_number():
    return threading.get_native_id()


def give(w):
    function, address = w.live.pop(w.random.randrange(len(w.live)))
    assert function(address) == 0


def take(w):
    if len(w.live) > 64 or w.live and w.random.random() < 0.3:
        give(w)
    p, size, which = ctypes.c_void_p(), w.random.randrange(1, 4000), w.random.randrange(4)
    before = time.monotonic_ns()
    if which == 0:
        api, line, result = "cudaMalloc", sys._getframe().f_lineno, runtime.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size))
    elif which == 1:
        api, line, result = "cudaMalloc", sys._getframe().f_lineno, keeping.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size))
    elif which == 2:
        api, line, result = "cudaHostAlloc", sys._getframe().f_lineno, runtime.cudaHostAlloc(ctypes.byref(p), ctypes.c_size_t(size), 0)
    else:
        api, line, result = "cuMemAlloc_v2", sys._getframe().f_lineno, driver.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size))
    after = time.monotonic_ns()
    assert result == 0, result
    function = (runtime.cudaFree, keeping.cudaFree, runtime.cudaFreeHost, driver.cuMemFree_v2)[which]
    w.live.append((function, ctypes.c_void_p(p.value)))
    stack = stack_of(sys._getframe(), line)
    with lock:
        number = stacks.setdefault(stack, len(stacks))
        allocations.append(("a", thread_number(), before, after, p.value, size, number, api))
    return 1


# The ways to call.

def go(w):
    w.left -= 1
    if w.left < 0:
        return take(w)
    return w.random.choice(WAYS)(w)


def directly(w):
    return go(w)


def on_several_lines(w):
    return sum((
        0,
        go(
            w
        ),
        1,
    ))


def twice(w):
    first = go(w)
    second = go(w)
    return first + second


def by_lambda(w):
    return (lambda x: go(x))(w)


def in_a_list(w):
    return sum([go(w) for _ in range(1)])


def in_a_dictionary(w):
    return {k: go(w) for k in (1,)}[1]


def in_a_set(w):
    return len({
        go(w)
        for _ in (1,)
    })


def by_generator_expression(w):
    return sum(go(w) for _ in range(1))


def by_generator(w):
    def inner():
        yield 0
        yield go(w)
    return sum(inner())


def by_delegation(w):
    def innermost():
        yield go(w)

    def inner():
        yield from innermost()
    for value in inner():
        return value


def decorate(function):
    @functools.wraps(function)
    def wrapper(*args, **more):
        return function(*args, **more)
    return wrapper


@decorate
@functools.lru_cache(maxsize=None)
def decorated(w, *_):
    return go(w)


def by_decorator(w):
    return decorated(w, w.random.random())


def by_partial(w):
    return functools.partial(go, w)()


def by_sort(w):
    return len(sorted([1], key=lambda _: go(w)))


def by_map(w):
    return sum(map(go, [w]))


def by_reduce(w):
    return functools.reduce(lambda a, _: go(w), [0, 1])


def by_pattern(w):
    return len(re.sub("a", lambda _: str(go(w)), "bab"))


callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
libc = ctypes.CDLL(None)


def from_c(w):
    @callback
    def compare(a, b):
        return go(w)
    libc.qsort((ctypes.c_int * 2)(2, 1), 2, 4, compare)
    return 1


@contextmanager
def context(w):
    go(w)
    yield
    go(w)


def in_a_context(w):
    with context(w):
        return 1


def when_caught(w):
    try:
        raise ValueError
    except ValueError:
        return go(w)
    finally:
        go(w)


def raising(w):
    go(w)
    raise KeyError


def after_a_raise(w):
    try:
        raising(w)
    except KeyError:
        pass
    return go(w)


class Thing:
    def __init__(self, w):
        self.w = w

    def method(self):
        return go(self.w)

    @property
    def value(self):
        return go(self.w)

    @classmethod
    def by_class(cls, w):
        return go(w)

    @staticmethod
    def static(w):
        return go(w)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return go(self.w)

    def __call__(self):
        return go(self.w)

    def __add__(self, other):
        return go(self.w) + other

    def __len__(self):
        return go(self.w)

    def __contains__(self, x):
        return go(self.w) > 0

    def __iter__(self):
        yield go(self.w)

    def __eq__(self, other):
        return go(self.w) > 0


class Derived(Thing):
    def method(self):
        return super().method()


class Dying(object):
    def __init__(self, w):
        self.w = w

    def __del__(self):
        go(self.w)


def by_method(w):
    thing = w.random.choice((Thing, Derived))(w)
    way = w.random.randrange(11)
    if way == 0:
        return thing.method()
    if way == 1:
        return thing.value
    if way == 2:
        return Thing.by_class(w)
    if way == 3:
        return thing.static(w)
    if way == 4:
        return thing.something
    if way == 5:
        return thing()
    if way == 6:
        return thing + 1
    if way == 7:
        return len(thing)
    if way == 8:
        return 1 in thing
    if way == 9:
        return sum(thing)
    return int(thing == 1)


def when_it_dies(w):
    thing = Dying(w)
    del thing
    return 1


def in_a_class_body(w):
    class Body:
        value = go(w)
    return Body.value


program = compile("""
def in_text(w):
    return (
        go(w)
    )
result = in_text(w)
""", "text.py", "exec")


def by_exec(w):
    names = {"w": w, "go": go}
    exec(program, names)
    return names["result"]


expression = compile("go(w)", "expression.py", "eval")


def by_eval(w):
    return eval(expression, {"w": w, "go": go})


async def awaited(w):
    return go(w)


async def awaiting(w):
    return await awaited(w)


def by_coroutine(w):
    try:
        awaiting(w).send(None)
    except StopIteration as end:
        return end.value


def by_closure(w):
    count = 0

    def inner(again):
        nonlocal count
        count += 1
        return inner(again - 1) if again else go(w)
    return inner(w.random.randrange(4))


def in_a_thread(w):
    if w.random.random() < 0.8:
        return go(w)
    other = Walk(w.random.random())
    other.left = w.left

    def run():
        thread_begins()
        go(other)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    while other.live:
        give(other)
    return 1


if sys.version_info >= (3, 8):
    exec(compile("""
def by_walrus(w):
    if (n := go(w)) > 0:
        return n
""", "walrus.py", "exec"))
if sys.version_info >= (3, 10):
    exec(compile("""
def by_match(w):
    match [go(w), 2]:
        case [1, x]:
            return go(w)
        case _:
            return go(w)
""", "match.py", "exec"))
WAYS = [directly, on_several_lines, twice, by_lambda, in_a_list, in_a_dictionary, in_a_set, by_generator_expression, by_generator, by_delegation,
        by_decorator, by_partial, by_sort, by_map, by_reduce, by_pattern, from_c, in_a_context, when_caught, after_a_raise, by_method, by_method,
        by_method, when_it_dies, in_a_class_body, by_exec, by_eval, by_coroutine, by_closure, in_a_thread]
WAYS += [globals()[name] for name in ("by_walrus", "by_match") if name in globals()]


def walk_often(seed, walks, depth, pause):
    thread_begins()
    w = Walk(seed)
    for _ in range(walks):
        w.left = w.random.randrange(depth)
        go(w)
        time.sleep(pause)


def main():
    truth, seed, walks, threads, depth, pause = sys.argv[1], *map(int, sys.argv[2:6]), float(sys.argv[6])
    load()
    runtime.cudaFree(None)
    print("ready", flush=True)
    sys.stdin.readline()
    share = walks // (threads + 1)
    workers = [threading.Thread(target=walk_often, args=(seed * 1000 + i, share, depth, pause)) for i in range(threads)]
    for thread in workers:
        thread.start()
    walk_often(seed * 1000 + 999, share, depth, pause)
    for thread in workers:
        thread.join()
    with open(truth, "w") as out:
        for stack, number in stacks.items():
            print(json.dumps(["s", number, stack]), file=out)
        for allocation in allocations:
            print(json.dumps(allocation), file=out)
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
