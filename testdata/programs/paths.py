#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""paths.py ROUNDS: allocates in turn on Python call paths that differ only in lines. Prints a
JSON line per path, {"lines": [line of choose, line of middle], "count"}, and "done"."""
import ctypes
import json
import os
import random
import sys

cudart = ctypes.CDLL(os.environ.get("CUDART", "libcudart.so.12"))
counts = {}


def leaf():
    p = ctypes.c_void_p()
    assert cudart.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1)) == 0
    middle = sys._getframe(1)
    lines = middle.f_back.f_lineno, middle.f_lineno
    counts[lines] = counts.get(lines, 0) + 1


def middle(second):
    if second:
        leaf()
    else:
        leaf()


def choose(number):
    if number == 0:
        middle(False)
    elif number == 1:
        middle(False)
    elif number == 2:
        middle(True)
    else:
        middle(number & 1)
        middle(number & 1)


def run(rounds):
    generator = random.Random(7)
    for _ in range(rounds):
        choose(generator.randrange(5))


run(int(sys.argv[1]))
for lines, count in sorted(counts.items()):
    print(json.dumps({"lines": lines, "count": count}))
print("done", flush=True)
