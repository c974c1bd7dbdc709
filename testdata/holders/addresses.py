# SPDX-License-Identifier: Apache-2.0
"""Allocates memory of a GPU with the driver and keeps the addresses in many ways. Needs nothing but Python and
libcuda.so.1. Writes to the file that argv[1] names, as JSON, the address, the bytes and the path of each allocation.
Prints "ready PID" and waits for its input to end."""
import array, collections, ctypes, functools, gc, json, os, sys, threading, weakref

cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
device, context = ctypes.c_int(), ctypes.c_void_p()
cuda.cuDeviceGet(ctypes.byref(device), 0)
cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)
truth = []


def new(path, offset=0, bytes=0):
    """Returns the address as a Python integer that nothing else has."""
    pointer = ctypes.c_void_p()
    n = bytes or 4096 * (1 + len(truth))
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(n)) == 0
    truth.append(["%x" % pointer.value, n, path])
    value = pointer.value + offset
    pointer.value = 0
    return value


class Buffer:
    def __init__(self, address):
        self.address = address

    def __del__(self):
        pass


class Slots:
    __slots__ = ("address",)


class Struct(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_void_p)]


class Address(int):
    pass


cache = {"x": new("cache['x'] (int)"), 3: new("cache[*] (int)")}
nested = {"k": {"v": (0, new("nested['k']['v'][1] (int)"))}}
a_list = [new("a_list[*] (int)") for _ in range(3)]
a_deque = collections.deque([new("a_deque[*] (int)")])
a_set = {new("a_set[*] (int)")}
keys = {new("keys.keys() (int)"): "name"}
buffer = Buffer(new("buffer.address (int)"))
slots = Slots()
slots.address = new("slots.address (int)")
number = new("number (int)")
derived = Address(new("derived (Address)"))
pointer = ctypes.c_void_p(new("pointer (c_void_p)"))
boxed = Buffer(ctypes.c_void_p(new("boxed.address (c_void_p)")))
struct = Struct(8, new("struct (Struct)"))
pointers = (ctypes.c_void_p * 4)(new("pointers (c_void_p_Array_4)"))
many = (ctypes.c_uint64 * 500)(*[new("many (c_ulong_Array_500)") for _ in range(4)])
numbers = array.array("Q", [new("numbers (array)") for _ in range(4)])
table = array.array("Q", [0] * 40000)
for i in range(0, 40000, 400):
    table[i] = new("table (array)", bytes=512)
inside = ctypes.c_void_p(new("inside (c_void_p, pointer inside)", 512))
partial = functools.partial(print, new("partial.args[0] (int)"))
local = threading.local()
local.a = new("local.a (int)")


def enclosing():
    hidden = new("closure.<closure hidden> (int)")
    return lambda: hidden


closure = enclosing()


def generate():
    waiting = new("generator.<local waiting of generate()> (int)")
    yield waiting


generator = generate()
next(generator)


def garbage():
    b = Buffer(new("cycle of Buffer.address (int)"))
    b.me = b


def main():
    own = new('local "own" (int) of main() (addresses.py:LINE)')
    listed = [Buffer(new('local "listed"[*].address (int) of main() (addresses.py:LINE)'))]
    new("no holder found")
    for each in truth:
        each[0] = each[0][:]
    with open(sys.argv[1], "w") as f:
        json.dump(truth, f)
    print("ready", os.getpid(), flush=True)
    sys.stdin.read()
    return own, listed


gc.collect()
gc.disable()
garbage()
main()
