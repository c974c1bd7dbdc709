#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds 64 MiB more every two seconds. Between, it holds 512 MiB for 20 ms, which no reading once a second sees."""
import ctypes
import os
import time

runtime = ctypes.CDLL("libcudart.so.12")
MIB = 1 << 20


def allocate(size):
    address = ctypes.c_void_p()
    if runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)):
        raise MemoryError(size)
    return address


def spike():
    address = allocate(512 * MIB)
    time.sleep(0.02)
    runtime.cudaFree(address)


held = []
print("ready", os.getpid(), flush=True)
while len(held) < 600:
    held.append(allocate(64 * MIB))
    time.sleep(1)
    spike()
    time.sleep(0.98)
