#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls a class 200 times on one line, whose __init__ allocates. CPython specializes the line after
some calls. Prints "ready PID", waits for a line on stdin, allocates, prints "done", waits, exits."""
import ctypes
import os
import sys

cudart = ctypes.CDLL(os.environ.get("CUDART", "libcudart.so.12"))


class Buffer:
    def __init__(self, size):
        self.address = ctypes.c_void_p()
        assert cudart.cudaMalloc(ctypes.byref(self.address), ctypes.c_size_t(size)) == 0


cudart.cudaFree(None)
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
buffers = []
for i in range(200):
    buffers.append(Buffer(1000))
print("done", flush=True)
sys.stdin.readline()
