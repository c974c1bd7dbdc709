# SPDX-License-Identifier: Apache-2.0
"""pycuda_arrays.py: has PyCUDA allocate an array, a pool, and load a module. Prints "loaded", waits for a line, prints "ready" and
waits again."""
import sys

import numpy
import pycuda.driver as driver
import pycuda.gpuarray
import pycuda.tools

PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.global .align 4 .b8 table[4194304];
.visible .entry kernel() { ret; }
"""


def array():
    return pycuda.gpuarray.empty(1 << 20, numpy.float32)


def pooled():
    return pycuda.gpuarray.empty(1 << 20, numpy.float32, allocator=pool.allocate)


def load():
    return driver.module_from_buffer(PTX)


driver.init()
context = driver.Device(0).make_context()
pool = pycuda.tools.DeviceMemoryPool()
print("loaded", flush=True)
sys.stdin.readline()
kept = array(), pooled(), load()
print("ready", flush=True)
sys.stdin.readline()
