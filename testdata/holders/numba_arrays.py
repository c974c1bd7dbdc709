# SPDX-License-Identifier: Apache-2.0
"""Keeps arrays of Numba in many ways, without PyTorch. Writes to the file that argv[1] names, as JSON, the address, the
bytes and the path of each. Prints "ready PID" and waits for its input to end."""
import gc, json, os, sys
import numpy
from numba import cuda

truth = []


def new(path, n=None):
    array = cuda.device_array((n or 100 * (1 + len(truth)),), numpy.float64)
    truth.append(["%x" % array.gpu_data.device_pointer.value, array.gpu_data.size, path])
    return array


class Solver:
    def __init__(self):
        self.field = new("solver.field.gpu_data (numba DeviceNDArray)")
        self.history = [new("solver.history[*].gpu_data (numba DeviceNDArray)") for _ in range(3)]


cache = {"x": new("cache['x'].gpu_data (numba DeviceNDArray)")}
solver = Solver()
part = new("part.gpu_data (numba DeviceNDArray)")[10:20]
raw = new("raw._mem (numba OwnedPointer)").gpu_data


def main():
    local = new('local "local".gpu_data (numba DeviceNDArray) of main() (numba_arrays.py:LINE)')
    gc.collect()
    with open(sys.argv[1], "w") as f:
        json.dump(truth, f)
    print("ready", os.getpid(), flush=True)
    sys.stdin.read()
    return local


main()
