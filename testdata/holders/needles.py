# SPDX-License-Identifier: Apache-2.0
"""Holds objects of class Needle in many ways. Each has the path that leads to it in attribute "path".
No import of torch: it runs on each version of Python. Prints "ready PID" and waits for its input to end."""
import array, asyncio, collections, contextvars, ctypes, functools, gc, itertools, os, sys, threading, types, weakref

try:
    import numpy
except ImportError:
    numpy = None


class Needle:
    def __init__(self, path):
        self.path = path
        self.padding = []


class Plain:
    def __init__(self):
        self.first = 1
        self.held = Needle("plain.held")


class Slots:
    __slots__ = ("one", "two")


class Derived(Slots):
    def __init__(self):
        self.two, self.extra = Needle("derived.two"), Needle("derived.extra")


class Names(dict):
    pass


class Items(list):
    pass


class Pair(tuple):
    pass


class Attribute:
    shared = Needle("Attribute.shared")

    def method(self, default=Needle("Attribute.method.__defaults__[0]")):
        return default


class Counted(int):
    pass


class Kept(Exception):
    pass


a_list = [Needle("a_list[*]") for _ in range(3)]
a_tuple = (1, Needle("a_tuple[1]"))
a_set = {Needle("a_set[*]")}
a_frozenset = frozenset([Needle("a_frozenset[*]")])
a_deque = collections.deque(Needle("a_deque[*]") for _ in range(200))
a_dict = {"key": Needle("a_dict['key']"), 7: [Needle("a_dict[*][*]")]}
by_number = {i: Needle("by_number[*]") for i in range(300)}
by_letter = {"k%d" % i: Needle("by_letter['k%d']" % i) for i in range(300)}
by_needle = {Needle("by_needle.keys()"): 1}
other_text = {"schlüssel€": Needle("other_text['schlüssel€']"), "\U0001f600": Needle("other_text['\U0001f600']")}
nested = {"k": {"v": (0, [Needle("nested['k']['v'][1][*]")])}}
ordered = collections.OrderedDict(a=Needle("ordered['a']"))
default = collections.defaultdict(list)
default["loss"].append(Needle("default['loss'][*]"))
chain = collections.ChainMap({"a": Needle("chain.maps[*]['a']")})
plain, derived = Plain(), Derived()
shrunk = Plain()
shrunk.held = Needle("shrunk.held")
del shrunk.first
grown = Plain()
grown.held = Needle("grown.held")
for i in range(60):
    setattr(grown, "f%d" % i, i)
strange = Plain()
strange.held = Needle("strange.held")
strange.__dict__["a b"] = 1
slots = Slots()
slots.one = Needle("slots.one")
names = Names(a=Needle("names['a']"))
names.extra = Needle("names.extra")
items = Items([Needle("items[*]")])
items.extra = Needle("items.extra")
pair = Pair([Needle("pair[0]")])
pair.extra = Needle("pair.extra")
counted = Counted(1 << 70)
counted.extra = Needle("counted.extra")
space = types.SimpleNamespace(a=Needle("space.a"))
partial = functools.partial(print, Needle("partial.args[0]"), end=Needle("partial.keywords['end']"))
iterator = iter([Needle("iterator.<list>[*]")])
bound = Plain().__init__
bound.__self__.held = Needle("bound.__self__.held")
try:
    def fails():
        lost = Needle("error.__traceback__.<local lost of fails()>")
        raise Kept(Needle("error.args[0]"))
    fails()
except Kept as e:
    error = e


def enclosing():
    inside = Needle("closure.<closure inside>")
    return lambda: inside


closure = enclosing()


def with_attribute(*, keyword=Needle("with_attribute.__kwdefaults__['keyword']")):
    return keyword


with_attribute.note = Needle("with_attribute.note")


@functools.lru_cache(maxsize=None)
def cached(n):
    return Needle("cached.cache[*]")


cached(1)


def generate():
    waiting = Needle("generator.<local waiting of generate()>")
    yield waiting


generator = generate()
next(generator)


def ends():
    gone = Needle("never found: the generator has ended")
    yield gone
    done.append(1)


done = []
ended = ends()
for _ in ended:
    pass
del _


class Once:
    def __await__(self):
        yield


async def suspend():
    awaited = Needle("coroutine.<local awaited of suspend()>")
    await Once()
    return awaited


coroutine = suspend()
coroutine.send(None)
boxed = ctypes.py_object(Needle("boxed._objects"))


class Struct(ctypes.Structure):
    _fields_ = [("first", ctypes.c_int), ("held", ctypes.py_object)]


struct = Struct(1, Needle("struct._objects['1']"))
boxes = (ctypes.py_object * 3)(Needle("boxes._objects['0']"))


class Watched:
    pass


watched = Watched()


def watch():
    told = Needle("watcher.__callback__.<closure told>")
    return weakref.ref(watched, lambda r: told)


watcher = watch()
weak_keys = weakref.WeakKeyDictionary()
weak_keys[watched] = Needle("weak_keys.data[*]")
finalizer = weakref.finalize(watched, print, Needle("weakref.finalize._registry[*].args[0]"))
nested_partial = functools.partial(functools.partial(print, Needle("nested_partial.args[0]")), Needle("nested_partial.args[1]"))
method = functools.partialmethod(print, Needle("method.args[0]"))
single = functools.singledispatch(print)
single.register(int, functools.partial(print, Needle("single.<closure dispatch>.<closure registry>[*].args[0]")))
variable = contextvars.ContextVar("variable")
variable.set(Needle("variable.<Needle>"))
others = [contextvars.ContextVar("v%d" % i) for i in range(40)]
context = contextvars.copy_context()
for v in others:
    context.run(v.set, Needle("others[*].<Needle>"))
del v
chained_iterator = itertools.chain([Needle("chained_iterator.<tuple_iterator>.<tuple>[0][*]")], [])
product = itertools.product([Needle("product.<tuple>[0][0]")], repeat=2)
if numpy:
    objects = numpy.array([Needle("objects[*]"), None, Needle("objects[*]")], dtype=object)
    large_objects = numpy.empty(5000, dtype=object)
    large_objects[:] = [Needle("large_objects[*]") for _ in range(5000)]
    objects_view = large_objects[10:20]
    record = numpy.zeros(3, dtype=[("n", "i8"), ("o", object)])
    record["o"][1] = Needle("record[*]")
local = threading.local()
local.a = Needle("local.a")


class Cyclic:
    pass


def make_cycle():
    c = Cyclic()
    c.me, c.held = c, Needle("cycle of Cyclic.held")


def in_thread():
    own = Needle('local "own" of in_thread() (needles.py:LINE)')
    started.set()
    stop.wait()
    return own


def outer():
    outside = Needle('local "outside" of outer() (needles.py:LINE)')

    def inner():
        in_cell = outside
        listed = [Needle('local "listed"[*] of outer.<locals>.inner() (needles.py:LINE)')]
        for each in [Needle('temporary.<tuple>[0] of outer.<locals>.inner() (needles.py:LINE)')]:
            del each
            print("ready", os.getpid(), flush=True)
            sys.stdin.read()
        return in_cell, listed
    inner()


started, stop = threading.Event(), threading.Event()
thread = threading.Thread(target=in_thread, daemon=True)
thread.start()
started.wait()
gc.collect()
gc.disable()
make_cycle()
outer()
