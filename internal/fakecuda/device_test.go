// SPDX-License-Identifier: Apache-2.0

package fakecuda

import (
	"os/exec"
	"testing"
)

// Asks the driver about addresses of each kind of memory, and calls NVML under the names that
// PyTorch uses. The kinds are those of CUpointer_attribute.
const askAboutDevices = `
import ctypes as C, os
cuda, nvml = C.CDLL("libcuda.so.1"), C.CDLL("libnvidia-ml.so.1")
def ok(result): assert result == 0, result
def out(kind, call, *rest):
    value = kind()
    ok(call(C.byref(value), *rest))
    return value
ok(cuda.cuInit(0))
flags, active = C.c_uint(), C.c_int(7)
def is_active(device):
    ok(cuda.cuDevicePrimaryCtxGetState(device, C.byref(flags), C.byref(active)))
    return active.value
assert (is_active(0), is_active(1)) == (0, 0)
context = out(C.c_void_p, cuda.cuDevicePrimaryCtxRetain, 1)
assert (is_active(0), is_active(1)) == (0, 1)
ok(cuda.cuCtxSetCurrent(context))
assert out(C.c_int, cuda.cuDeviceGetAttribute, 75, 1).value == 8
assert cuda.cuDeviceGetAttribute(C.byref(active), 75, 2) == 101
assert out(C.c_size_t, cuda.cuDeviceTotalMem_v2, 0).value == 1 << 30

def what(address): # memory type and device
    kind, device = C.c_uint(), C.c_int()
    result = cuda.cuPointerGetAttribute(C.byref(kind), 2, C.c_uint64(address))
    if result: return result
    ok(cuda.cuPointerGetAttribute(C.byref(device), 9, C.c_uint64(address)))
    return kind.value, device.value
size = 4 << 20
p = out(C.c_uint64, cuda.cuMemAlloc_v2, C.c_size_t(size)).value
assert what(p) == what(p + size - 1) == (2, 1)
pinned = out(C.c_uint64, cuda.cuMemHostAlloc, C.c_size_t(5000), 0).value
assert what(pinned) == what(pinned + 4999) == (1, 0) and what(pinned + 5000) == 1
own = C.create_string_buffer(8192)
assert what(C.addressof(own)) == 1
ok(cuda.cuMemHostRegister_v2(own, C.c_size_t(8192), 0))
assert what(C.addressof(own) + 100) == (1, 0)
asynchronous = out(C.c_uint64, cuda.cuMemAllocAsync, C.c_size_t(100), None).value
assert what(asynchronous) == (2, 1)
class Properties(C.Structure): _fields_ = [(n, C.c_int) for n in ("type", "handles", "where", "device")] + [("windows", C.c_void_p), ("flags", C.c_char * 8)]
base = out(C.c_uint64, cuda.cuMemAddressReserve, C.c_size_t(2 * size), C.c_size_t(0), C.c_uint64(0), C.c_ulonglong(0)).value
handle = out(C.c_uint64, cuda.cuMemCreate, C.c_size_t(size), C.byref(Properties(1, 0, 1, 0)), C.c_ulonglong(0))
ok(cuda.cuMemMap(C.c_uint64(base), C.c_size_t(size), C.c_size_t(0), handle, C.c_ulonglong(0)))
assert what(base) == (2, 0) and what(base + size) == 1

bus = C.create_string_buffer(32)
ok(cuda.cuDeviceGetPCIBusId(bus, 32, 1))
ok(nvml.nvmlInit_v2())
device, uuid = C.c_void_p(), C.create_string_buffer(96)
ok(nvml.nvmlDeviceGetHandleByPciBusId_v2(bus, C.byref(device)))
ok(nvml.nvmlDeviceGetUUID(device, uuid, 96))
of_cuda = (C.c_ubyte * 16)()
ok(cuda.cuDeviceGetUuid(of_cuda, 1))
assert uuid.value.decode().replace("-", "") == "GPU" + bytes(of_cuda).hex()
class Process(C.Structure): _fields_ = [("pid", C.c_uint), ("bytes", C.c_ulonglong)]
processes, count = (Process * 4)(), C.c_uint(4)
ok(nvml.nvmlDeviceGetComputeRunningProcesses(device, C.byref(count), processes))
assert count.value == 1 and processes[0].pid == os.getpid() and processes[0].bytes > size, (count, processes[0].pid)
`

func TestFakeCUDAReportsDevicesOfAddresses(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	cmd := exec.Command(python, "-c", askAboutDevices)
	cmd.Env = Build(t).Env(t, 2, 1<<30)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
