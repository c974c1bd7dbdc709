# SPDX-License-Identifier: Apache-2.0
"""onnx.py FOLDER: has ONNX Runtime, whose libraries are in FOLDER, multiply by a matrix on the GPU. Prints "loaded", waits for a
line, prints "ready" and waits. Then it takes 1,000 bytes of the session's arena, prints "taken", waits, gives them back, prints "given" and waits."""
import ctypes
import os
import sys

N = 1024


def field(number, value):
    """A field of a protobuf message: a varint or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def model():
    """An ONNX model: y = x @ w, where w is an N by N matrix of zeros."""
    def value(name):
        shape = b"".join(field(1, field(1, N)) for _ in range(2))
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))

    w = field(1, N) + field(1, N) + field(2, 1) + field(8, "w") + field(9, bytes(4 * N * N))
    node = field(1, "x") + field(1, "w") + field(2, "y") + field(4, "MatMul")
    graph = field(1, node) + field(2, "g") + field(5, w) + field(11, value("x")) + field(12, value("y"))
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


class Base(ctypes.Structure):  # OrtApiBase
    _fields_ = [("api", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)), ("version", ctypes.c_void_p)]


# Places in OrtApi, which only grows.
MESSAGE, ENV, SESSION, RUN, OPTIONS, TENSOR, MEMORY, CPU, ALLOC, FREE, ALLOCATOR, APPEND, CUDA = 2, 3, 8, 9, 10, 49, 68, 69, 75, 76, 131, 204, 205


def function(place):
    return ctypes.CFUNCTYPE(ctypes.c_void_p)(functions[place])


def check(status):
    if status:
        message = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(functions[MESSAGE])(status)
        raise RuntimeError(message.decode())


def made(place, *arguments):
    p = ctypes.c_void_p()
    check(function(place)(*arguments, ctypes.byref(p)))
    return p


def load(env, text):
    options, cuda, session = made(OPTIONS), made(CUDA), ctypes.c_void_p()
    check(function(APPEND)(options, cuda))
    check(function(SESSION)(env, text, ctypes.c_size_t(len(text)), options, ctypes.byref(session)))
    return session


def evaluate(session):
    memory, shape, x = made(CPU, 0, 0), (ctypes.c_int64 * 2)(N, N), (ctypes.c_float * (N * N))()
    tensor = made(TENSOR, memory, x, ctypes.c_size_t(4 * N * N), shape, ctypes.c_size_t(2), 1)
    y = ctypes.c_void_p()
    one = ctypes.c_size_t(1)
    check(function(RUN)(session, None, (ctypes.c_char_p * 1)(b"x"), (ctypes.c_void_p * 1)(tensor), one, (ctypes.c_char_p * 1)(b"y"), one, ctypes.byref(y)))
    return y


ctypes.CDLL("libcuda.so.1")
onnx = ctypes.CDLL(os.path.join(sys.argv[1], "libonnxruntime.so.1"), mode=ctypes.RTLD_GLOBAL)
onnx.OrtGetApiBase.restype = ctypes.POINTER(Base)
functions = ctypes.cast(onnx.OrtGetApiBase().contents.api(19), ctypes.POINTER(ctypes.c_void_p))
env = made(ENV, 2, b"vramprof")
print("loaded", flush=True)
sys.stdin.readline()
session = load(env, model())
result = evaluate(session)
print("ready", flush=True)
sys.stdin.readline()
arena = made(ALLOCATOR, session, made(MEMORY, b"Cuda", 1, 0, 0))
p = made(ALLOC, arena, ctypes.c_size_t(1000))
print("taken", flush=True)
sys.stdin.readline()
check(function(FREE)(arena, p))
print("given", flush=True)
sys.stdin.readline()
