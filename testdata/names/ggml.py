# SPDX-License-Identifier: Apache-2.0
"""ggml.py FILE: has ggml, which is linked into FILE, allocate a tensor on the GPU, as llama.cpp and whisper.cpp do. Prints "loaded",
waits for a line, prints "ready" and waits again."""
import ctypes
import sys


class Params(ctypes.Structure):  # ggml_init_params
    _fields_ = [("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def pointer(address):
    assert address
    return ctypes.c_void_p(address)


def weights():
    backend = pointer(ggml.ggml_backend_cuda_init(0))
    context = pointer(ggml.ggml_init(Params(1 << 20, None, True)))
    pointer(ggml.ggml_new_tensor_1d(context, 0, ctypes.c_int64(2 << 20)))  # of floats
    return pointer(ggml.ggml_backend_alloc_ctx_tensors(context, backend))


# Lazily: Node, whose functions the file calls too, is missing.
libc = ctypes.CDLL(None)
libc.dlopen.restype = ctypes.c_void_p
ctypes.CDLL("libcuda.so.1")
handle = libc.dlopen(sys.argv[1].encode(), 1)
assert handle, sys.argv[1]
ggml = ctypes.CDLL(sys.argv[1], handle=handle)
for name in ("backend_cuda_init", "init", "new_tensor_1d", "backend_alloc_ctx_tensors"):
    getattr(ggml, "ggml_" + name).restype = ctypes.c_void_p
print("loaded", flush=True)
sys.stdin.readline()
buffer = weights()
print("ready", flush=True)
sys.stdin.readline()
