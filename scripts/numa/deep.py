# SPDX-License-Identifier: Apache-2.0
"""deep.py THREADS SECONDS STEP: like deep.c, below 8 Python functions."""
import ctypes
import sys
import threading
import time

cudart = ctypes.CDLL("libcudart.so.12")
threads, seconds, step = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])


def bottom(end):
    n = 0
    while time.thread_time() < end and (not step or n < step):
        p = ctypes.c_void_p()
        if cudart.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(4096)) or cudart.cudaFree(p):
            sys.exit(1)
        n += 1
        for _ in range(5000):
            pass
    return n


def level(depth, end):
    return list(map(lambda d: level(d, end), [depth - 1]))[0] if depth else bottom(end)  # through C, as PyTorch's modules call


def main():
    end, n = time.thread_time() + seconds, 0
    while time.thread_time() < end:
        n += level(8, end)
    print(n, "allocations")


for t in [threading.Thread(target=main) for _ in range(threads)]:
    t.start()
