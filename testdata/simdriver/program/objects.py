# SPDX-License-Identifier: Apache-2.0
"""objects.py [CUBIN…]: makes a process allocate step by step, and compares NVML's figure of it with the sum of the
objects in the GPU's memory that libcuda had from the kernel driver, as record.c wrote them down. On a
real GPU it shows that the two are equal; on the simulated driver, that the simulation counts alike.
A CUBIN is loaded, and its first kernel named as the file is launched.

    gcc -shared -fPIC -o record.so record.c -ldl
    LD_PRELOAD=$PWD/record.so RECORD=$PWD/record.txt python3 objects.py

Exit status 1: they differ at a step."""
import ctypes, os, struct, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3, "scripts"))
from gpucheck.nvml import MIB, NVML

VIDEO_MEMORY = 0x40  # NV01_MEMORY_LOCAL_USER
SIZE_AT = 64  # of NV_MEMORY_ALLOCATION_PARAMS.size, in bytes
# Drivers up to 535 make these objects with NV_ESC_RM_VID_HEAP_CONTROL. Offsets are in NVOS32_PARAMETERS.
HEAP, ALLOC_SIZE, VIRTUAL, LOCATION = 0x4A, 2, 0x80000, 3 << 25  # NVOS32_ATTR_LOCATION: 0 is the GPU's memory


class Record:
    """The objects that live according to the lines so far."""

    def __init__(self, path):
        self.file, self.live = open(path), {}  # (client, handle): (parent, bytes in video memory)

    def read(self):
        for line in self.file:
            kind, *fields = line.split(" ")
            if kind == "alloc":
                which, client, parent, handle, status = (int(x, 16) for x in fields[:5])
                if not status:
                    size = struct.unpack_from("<Q", bytes.fromhex(fields[7]), SIZE_AT)[0] if which == VIDEO_MEMORY else 0
                    self.live[client, handle] = parent, size
            elif kind == "escape" and int(fields[0], 16) == HEAP:
                body = bytes.fromhex(fields[3])
                client, parent, function = struct.unpack_from("<III", body)
                (status,), (handle, _, flags, attributes), (size,) = struct.unpack_from("<I", body, 20), struct.unpack_from("<IIII", body, 44), struct.unpack_from("<Q", body, 88)
                if function == ALLOC_SIZE and not status:
                    self.live[client, handle] = parent, 0 if flags & VIRTUAL or attributes & LOCATION else size
            elif kind == "free":
                client, _, handle, status = (int(x, 16) for x in fields)
                if not status:
                    self.free(client, handle)
        return self

    def free(self, client, handle):
        """Frees an object and what is below it; the client itself is above all of its objects."""
        self.live.pop((client, handle), None)
        for c, h in [k for k, (parent, _) in self.live.items() if k[0] == client and parent == handle]:
            self.free(c, h)

    def sizes(self):
        return [size for _, size in self.live.values() if size]


class Steps:
    def __init__(self):
        self.cuda, self.nvml, self.record = ctypes.CDLL("libcuda.so.1"), NVML(), Record(os.environ["RECORD"])
        self.differ = 0
        self.call("cuInit", 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result:
            sys.exit("%s: %d" % (name, result))

    def point(self, name):
        self.call("cuCtxSynchronize")
        usage, sizes = self.nvml.usage(os.getpid()), self.record.read().sizes()
        self.differ += usage != sum(sizes)
        print("%-24s NVML %9.2f MiB, %3d objects %9.2f MiB%s" % (name, usage / MIB, len(sizes), sum(sizes) / MIB, "" if usage == sum(sizes) else "  DIFFERS"), flush=True)

    def allocate(self, size, stream=False):
        at = ctypes.c_uint64()
        self.call(*(("cuMemAllocAsync", ctypes.byref(at), ctypes.c_size_t(size), None) if stream else ("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))))
        return at

    def run(self, cubins):
        self.point("a context")
        self.allocate(1000)
        self.point("1000 bytes")
        big = self.allocate(3 * MIB + 5)
        self.point("3 MiB + 5")
        self.allocate(100 * MIB + 1)
        self.point("100 MiB + 1")
        small = [self.allocate(600 << 10) for _ in range(4)]
        self.point("4 of 600 KiB")
        for at in small:
            self.call("cuMemFree_v2", at)
        self.point("freed these 4")
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        self.point("a stream")
        queued = [self.allocate(1000, stream=True)]
        self.point("async, 1000 bytes")
        queued.append(self.allocate(33 * MIB, stream=True))
        self.point("async, 33 MiB")
        for at in queued:
            self.call("cuMemFreeAsync", at, None)
        self.point("freed both")
        self.graph(big)
        for path in cubins:
            self.launch(path, big)
        second = ctypes.c_void_p()
        self.call("cuCtxCreate_v2", ctypes.byref(second), 0, 0)
        self.point("a second context")

    def graph(self, at):
        class Memset(ctypes.Structure):
            _fields_ = [("at", ctypes.c_uint64), ("pitch", ctypes.c_size_t), ("value", ctypes.c_uint), ("element", ctypes.c_uint), ("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]
        graph, node, exe = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuGraphCreate", ctypes.byref(graph), 0)
        for _ in range(100):
            self.call("cuGraphAddMemsetNode", ctypes.byref(node), graph, None, ctypes.c_size_t(0), ctypes.byref(Memset(at.value, 0, 1, 1, 64, 1)), self.context)
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(exe), graph, ctypes.c_uint64(0))
        self.point("a graph of 100 memsets")
        self.call("cuGraphLaunch", exe, None)
        self.point("its launch")

    def launch(self, path, at):
        name = os.path.basename(path).partition(".")[0]
        module, function, pointer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(at.value)
        self.call("cuModuleLoad", ctypes.byref(module), path.encode())
        self.point("module " + name)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(pointer), ctypes.c_void_p))
        self.call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, arguments, None)
        self.point("launch of " + name)


steps = Steps()
steps.run(sys.argv[1:])
sys.exit(int(steps.differ > 0))
