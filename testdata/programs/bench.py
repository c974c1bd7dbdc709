#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench.py LIB DEPTH COUNT: runs COUNT alloc/free pairs in a tight loop below DEPTH Python
functions, through ctypes; LIB is cudart or cuda. Prints "ns_per_pair X" (median of the chunks
of all threads) and "pairs N", as bench_c does; options have the same meaning too."""
import argparse
import ctypes
import os
import signal
import statistics
import sys
import threading
import time

CHUNK = 500
totals = []  # pairs per thread
splits = []  # (ns per allocation, ns per free) of each chunk of --split


class Through:
    def __init__(self, file):
        library = ctypes.CDLL(None if file == "-" else file)
        self.take, self.free = library.posix_memalign, library.free
        self.take.argtypes, self.free.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t), (ctypes.c_void_p,)

    def malloc(self, out, size):
        return self.take(out, 16, size)

    def enter_thread(self):
        pass


class Cudart:
    def __init__(self):
        library = ctypes.CDLL(os.environ.get("CUDART", "libcudart.so.12"))
        self.malloc, self.free = library.cudaMalloc, library.cudaFree
        self.malloc.argtypes, self.free.argtypes = (ctypes.c_void_p, ctypes.c_size_t), (ctypes.c_void_p,)
        self.free(None)

    def enter_thread(self):
        pass


class Cuda:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.malloc, self.free = self.library.cuMemAlloc_v2, self.library.cuMemFree_v2
        self.malloc.argtypes, self.free.argtypes = (ctypes.c_void_p, ctypes.c_size_t), (ctypes.c_void_p,)
        self.context = ctypes.c_void_p()
        self.library.cuInit(0)
        self.library.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0)
        self.enter_thread()

    def enter_thread(self):
        self.library.cuCtxSetCurrent(self.context)


def measure_split(cuda, size):
    malloc, free = cuda.malloc, cuda.free
    blocks = [ctypes.c_void_p() for _ in range(CHUNK)]
    out = [ctypes.byref(p) for p in blocks]
    begin = time.perf_counter_ns()
    for p in out:
        malloc(p, size)
    between = time.perf_counter_ns()
    for p in blocks:
        free(p)
    splits.append(((between - begin) / CHUNK, (time.perf_counter_ns() - between) / CHUNK))


def left(malloc, out, size, path, level):
    """The bits of a number select one of two functions on each level: one stack per number."""
    if not level:
        return malloc(out, size)
    return (right if path & 1 else left)(malloc, out, size, path >> 1, level - 1)


def right(malloc, out, size, path, level):
    if not level:
        return malloc(out, size)
    return (right if path & 1 else left)(malloc, out, size, path >> 1, level - 1)


def measure_paths(cuda, options, chunks):
    malloc, free, size, paths = cuda.malloc, cuda.free, options.size, options.paths
    level = max(1, (paths - 1).bit_length())
    chunk = min(CHUNK, options.rate // 100 + 1) if options.rate else CHUNK
    p = ctypes.c_void_p()
    out = ctypes.byref(p)
    begin, pairs = time.monotonic(), 0
    while pairs < options.count if not options.seconds else time.monotonic() - begin < options.seconds:
        t = time.perf_counter_ns()
        for i in range(chunk):
            left(malloc, out, size, i % paths, level)
            if not options.keep:
                free(p)
        chunks.append((time.perf_counter_ns() - t) / chunk)
        pairs += chunk
        if options.rate:
            time.sleep(max(0, begin + pairs / options.rate - time.monotonic()))
    totals.append(pairs)


def measure(cuda, options, chunks):
    if options.paths:
        return measure_paths(cuda, options, chunks)
    malloc, free, size = cuda.malloc, cuda.free, options.size
    p = ctypes.c_void_p()
    out = ctypes.byref(p)
    begin, pairs = time.monotonic(), 0
    while pairs < options.count if not options.seconds else time.monotonic() - begin < options.seconds:
        t = time.perf_counter_ns()
        for _ in range(CHUNK):
            malloc(out, size)
            free(p)
        chunks.append((time.perf_counter_ns() - t) / CHUNK)
        pairs += CHUNK
        if options.split:
            measure_split(cuda, size)
    totals.append(pairs)


def forward(cuda, options, chunks, depth):
    if depth > 1:
        call(cuda, options, chunks, depth - 1)
    else:
        measure(cuda, options, chunks)


def call(cuda, options, chunks, depth):
    if depth > 1:
        forward(cuda, options, chunks, depth - 1)
    else:
        measure(cuda, options, chunks)


def run_thread(cuda, options, chunks):
    cuda.enter_thread()
    forward(cuda, options, chunks, max(options.depth - 2, 1))  # this function and measure() are two of the frames


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lib", choices=["cudart", "cuda"])
    parser.add_argument("depth", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--paths", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="free nothing")
    parser.add_argument("--through", metavar="FILE", help="posix_memalign and free of that library")
    parser.add_argument("--wait", action="store_true", help="print ready PID and wait for SIGUSR1")
    parser.add_argument("--split", action="store_true", help="print ns_per_alloc and ns_per_free too")
    parser.add_argument("--hold", action="store_true", help="print done and wait for SIGUSR1 at the end")
    options = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    if options.keep or options.rate:
        options.paths = options.paths or 1
    cuda = Through(options.through) if options.through else Cudart() if options.lib == "cudart" else Cuda()
    if options.wait:
        print("ready", os.getpid(), flush=True)
        signal.sigwait({signal.SIGUSR1})
    chunks = []
    threads = [threading.Thread(target=run_thread, args=(cuda, options, chunks)) for _ in range(options.threads - 1)]
    for t in threads:
        t.start()
    run_thread(cuda, options, chunks)
    for t in threads:
        t.join()
    print(f"ns_per_pair {statistics.median(chunks):.1f}\npairs {sum(totals)}", flush=True)
    if options.keep:
        print(f"allocations {sum(totals)}\nlive_bytes {sum(totals) * options.size}", flush=True)
    for name, values in zip(("ns_per_alloc", "ns_per_free"), zip(*splits)):
        print(f"{name} {statistics.median(values):.1f}", flush=True)
    if options.hold:
        print("done", flush=True)
        signal.sigwait({signal.SIGUSR1})


if __name__ == "__main__":
    sys.exit(main())
