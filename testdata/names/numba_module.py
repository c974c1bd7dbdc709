# SPDX-License-Identifier: Apache-2.0
"""numba_module.py: has Numba load a module onto the GPU. Prints "loaded", waits for a line, prints "ready" and waits again."""
import sys

from numba import cuda

PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.global .align 4 .b8 table[4194304];
.visible .entry kernel() { ret; }
"""


def load():
    return cuda.current_context().create_module_ptx(PTX)


cuda.current_context()
print("loaded", flush=True)
sys.stdin.readline()
module = load()
print("ready", flush=True)
sys.stdin.readline()
