# SPDX-License-Identifier: Apache-2.0
"""ranks.py RANK FOLDER: one of two ranks, each on a GPU of its own, that make three communicators of NCCL of
different sizes, each in a function of its own. Rank 0 prints "loaded", waits for a line, prints "ready", waits again,
exchanges arrays by the first one, prints "exchanged", waits, captures a graph of collectives, prints "captured", waits, destroys the second one, prints "destroyed" and
waits. Rank 1 follows by files in the folder."""
import ctypes
import os
import sys
import time

RANK, FOLDER = int(sys.argv[1]), sys.argv[2]
UNDEFINED = -2**31


class Id(ctypes.Structure):  # ncclUniqueId
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Config(ctypes.Structure):  # ncclConfig_t of NCCL 2.22
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", ctypes.c_int),
                ("cluster", ctypes.c_int), ("least", ctypes.c_int), ("most", ctypes.c_int), ("net", ctypes.c_char_p), ("share", ctypes.c_int)]


def config(blocks=UNDEFINED, share=UNDEFINED):
    return Config(ctypes.sizeof(Config), 0xcafebeef, 22203, UNDEFINED, UNDEFINED, blocks, blocks, None, share)


def library(name):
    return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)


def check(result):
    assert result == 0, result


def by(p):
    return ctypes.byref(p)


def together(name):
    """Returns the bytes that rank 0 has for both ranks, once there are some."""
    path = os.path.join(FOLDER, name)
    if RANK == 0:
        unique = Id()
        check(nccl.ncclGetUniqueId(by(unique)))
        with open(path + ".new", "wb") as f:
            f.write(bytes(unique))
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as f:
        return Id.from_buffer_copy(f.read())


def world():
    unique, comm = together("world"), ctypes.c_void_p()
    check(nccl.ncclCommInitRank(by(comm), 2, unique, RANK))
    return comm


def tensor_parallel():
    unique, comm = together("tensor_parallel"), ctypes.c_void_p()
    check(nccl.ncclCommInitRankConfig(by(comm), 2, unique, RANK, by(config(blocks=1))))
    return comm


def pipeline(comm):
    part = ctypes.c_void_p()
    check(nccl.ncclCommSplit(comm, 0, RANK, by(part), None))
    return part


def exchange(comm):
    arrays, count = [ctypes.c_void_p(), ctypes.c_void_p()], ctypes.c_size_t(1 << 20)
    for a in arrays:
        check(cuda.cudaMalloc(by(a), ctypes.c_size_t(4 << 20)))
    check(nccl.ncclGroupStart())
    check(nccl.ncclSend(arrays[0], count, 7, 1 - RANK, comm, None))
    check(nccl.ncclRecv(arrays[1], count, 7, 1 - RANK, comm, None))
    check(nccl.ncclGroupEnd())


def capture(comm):
    array, stream, graph = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cudaMalloc(by(array), ctypes.c_size_t(4 << 20)))
    check(cuda.cudaStreamCreate(by(stream)))
    check(cuda.cudaStreamBeginCapture(stream, 2))
    check(nccl.ncclGroupStart())
    for _ in range(256):
        check(nccl.ncclAllReduce(array, array, ctypes.c_size_t(1 << 20), 7, 0, comm, stream))
    check(nccl.ncclGroupEnd())
    check(cuda.cudaStreamEndCapture(stream, by(graph)))
    return graph


ctypes.CDLL("libcuda.so.1")
cuda = library("libcudart.so.12")
nccl = library("libnccl.so.2")
check(cuda.cudaSetDevice(RANK))
check(cuda.cudaFree(None))
if RANK == 0:
    print("loaded", flush=True)
    sys.stdin.readline()
first = world()
second = tensor_parallel()
third = pipeline(first)
if RANK == 0:
    print("ready", flush=True)
    sys.stdin.readline()
together("exchange")
exchange(first)
if RANK == 0:
    print("exchanged", flush=True)
    sys.stdin.readline()
together("capture")
graph = capture(first)
if RANK == 0:
    print("captured", flush=True)
    sys.stdin.readline()
together("destroy")
check(nccl.ncclCommDestroy(second))
if RANK == 0:
    print("destroyed", flush=True)
sys.stdin.readline()
