#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Allocates on known lines: prints "ready PID", waits, allocates, prints its allocations as JSON
lines ({"api", "kind", "size", "live", "stack": [[function, line], …] root first}) and "done",
waits, exits.

It waits for SIGUSR1 or, with --stdin, for a line on stdin."""
import argparse
import ctypes
import json
import os
import signal
import sys
import threading

cudart = ctypes.CDLL(os.environ.get("CUDART", "libcudart.so.12"))
done = []  # rows of the output; a list's append is atomic


def note(api, kind, address, size):
    """Must be called on the line after the allocating call."""
    frame, stack = sys._getframe(1), []
    line = frame.f_lineno - 1
    while frame:
        if frame.f_code.co_filename == __file__:
            code = frame.f_code
            stack.insert(0, [getattr(code, "co_qualname", code.co_name), line])
        frame = frame.f_back
        line = frame.f_lineno if frame else 0
    done.append({"api": api, "kind": kind, "size": size, "live": True, "stack": stack, "address": address})


def device_malloc(size):
    p = ctypes.c_void_p()
    result = cudart.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size))
    note("cudaMalloc", "device", p.value, size)
    assert result == 0, result
    return p


def device_free(p):
    result = cudart.cudaFree(p)
    assert result == 0, result
    freed = [row for row in done if row["address"] == p.value and row["live"]]
    freed[-1]["live"] = False


class Model:
    def __init__(self):
        self.weights = device_malloc(4 << 20)

    def forward(self, size):
        activation = device_malloc(size)
        device_free(activation)


class History:
    def __init__(self):
        self.kept = []

    def append(self, size):
        self.kept.append(device_malloc(size))


def pinned_buffer(size):
    p = ctypes.c_void_p()
    result = cudart.cudaHostAlloc(ctypes.byref(p), ctypes.c_size_t(size), ctypes.c_uint(0))
    note("cudaHostAlloc", "pinned", p.value, size)
    assert result == 0, result
    return p


def managed_table(size):
    p = ctypes.c_void_p()
    result = cudart.cudaMallocManaged(ctypes.byref(p), ctypes.c_size_t(size), ctypes.c_uint(1))
    note("cudaMallocManaged", "managed", p.value, size)
    assert result == 0, result
    return p


def worker(number):
    for i in range(3):
        device_malloc(1000 + number)


def run(options):
    model, history = Model(), History()
    for step in range(options.steps):
        model.forward(1 << 20)
        history.append(options.leak_bytes)
    pinned_buffer(65536)
    managed_table(100000)
    threads = [threading.Thread(target=worker, args=(n,)) for n in range(options.threads)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def wait(options):
    if options.stdin:
        sys.stdin.readline()
    else:
        signal.sigwait({signal.SIGUSR1})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stdin", action="store_true")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--leak-bytes", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    cudart.cudaFree(None)
    print("ready", os.getpid(), flush=True)
    wait(options)
    run(options)
    for row in done:
        print(json.dumps({k: v for k, v in row.items() if k != "address"}))
    print("done", flush=True)
    wait(options)


main()
