# SPDX-License-Identifier: Apache-2.0
"""libraries.py: has NVIDIA's libraries take GPU memory, each in a function of its own. Prints "loaded", waits for
a line, prints "ready" and waits again."""
import ctypes
import sys

N = 512


class Id(ctypes.Structure):  # ncclUniqueId
    _fields_ = [("bytes", ctypes.c_char * 128)]


def library(name):
    return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)


def check(result):
    assert result == 0, result


def pointer():
    return ctypes.c_void_p()


def by(p):
    return ctypes.byref(p)


def array(floats):
    p = pointer()
    check(cuda.cudaMalloc(by(p), ctypes.c_size_t(4 * floats)))  # the program's own
    return p


def world():
    unique, comm = Id(), pointer()
    check(nccl.ncclGetUniqueId(by(unique)))
    check(nccl.ncclCommInitRank(by(comm), 1, unique, 0))
    return comm


def tensor_parallel(comm):
    part = pointer()
    check(nccl.ncclCommSplit(comm, 0, 0, by(part), None))
    return part


def reduce(comm):
    check(nccl.ncclAllReduce(a, b, ctypes.c_size_t(N), 7, 0, comm, None))


def handle():
    h = pointer()
    check(blas.cublasCreate_v2(by(h)))
    return h


def multiply(h, stream):
    check(blas.cublasSetStream_v2(h, stream))
    one = ctypes.c_float(1)
    check(blas.cublasSgemm_v2(h, 0, 0, N, N, N, by(one), a, N, b, N, by(one), c, N))


def stream():
    s = pointer()
    check(cuda.cudaStreamCreate(by(s)))
    return s


def light():
    h = pointer()
    check(lt.cublasLtCreate(by(h)))
    return h


def transform(n):
    plan = ctypes.c_int()
    check(fft.cufftPlan1d(by(plan), n, 0x29, 4))  # complex
    return plan


def solver():
    h = pointer()
    check(solve.cusolverDnCreate(by(h)))
    return h


def random():
    g = pointer()
    check(rand.curandCreateGenerator(by(g), 101))  # XORWOW
    check(rand.curandGenerateUniform(g, a, ctypes.c_size_t(N)))  # allocates its state
    return g


def buffer():
    p = pointer()
    check(nccl.ncclMemAlloc(by(p), ctypes.c_size_t(8 << 20)))
    return p


def factors():
    info = pointer()
    check(sparse.cusparseCreateCsrilu02Info(by(info)))
    return info


def picture():
    h, memory = pointer(), pointer()
    check(jpeg.nvjpegCreateSimple(by(h)))
    check(jpeg.nvjpegBufferDeviceCreate(h, None, by(memory)))
    check(jpeg.nvjpegBufferDeviceResize(memory, ctypes.c_size_t(3 << 20), None))
    return memory


def plane():
    new = npp.nppiMalloc_8u_C1
    new.restype = ctypes.c_void_p
    p = new(4000, 4000, by(ctypes.c_int()))
    assert p
    return p


ctypes.CDLL("libcuda.so.1")
cuda = library("libcudart.so.12")
nccl = library("libnccl.so.2")
blas = library("libcublas.so.12")
fft = library("libcufft.so.11")
solve = library("libcusolver.so.11")
rand = library("libcurand.so.10")
sparse = library("libcusparse.so.12")
jpeg = library("libnvjpeg.so.12")
library("libnppc.so.12")
npp = library("libnppisu.so.12")
print("loaded", flush=True)
sys.stdin.readline()
a, b, c = array(N * N), array(N * N), array(N * N)
lt = library("libcublasLt.so.12")
light()
comm = world()
part = tensor_parallel(comm)
reduce(comm)
h = handle()
multiply(h, None)
multiply(h, stream())
plan = transform(1 << 20)
s = solver()
generator = random()
kept = buffer(), factors(), picture(), plane()
print("ready", flush=True)
sys.stdin.readline()
