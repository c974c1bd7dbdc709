// SPDX-License-Identifier: Apache-2.0

package fakecuda

import (
	"strings"
	"testing"
)

// call is a pair of calls that allocate and free memory, with the expected counts in between.
type call struct {
	allocate, free string
	want           GPU // without context; NVML reports Usage more
}

var (
	device  = GPU{Usage: 2 * mib, Device: Count{1, 1000}, Total: Count{1, 1000}}
	pitched = GPU{Usage: 2 * mib, Device: Count{1, 5120}, Total: Count{1, 5120}}
	managed = GPU{Managed: Count{1, 1000}, Total: Count{1, 1000}}
	async   = GPU{Usage: 32 * mib, Async: Count{1, 1000}, PoolReserved: 32 * mib}
	array   = GPU{Usage: 2 * mib, Array: Count{1, 64 * 32 * 16}}
	mipmap  = GPU{Usage: 2 * mib, Array: Count{1, (64*64 + 32*32 + 16*16) * 4}}
	vmm     = GPU{Usage: 4 * mib, VMM: Count{1, 4 * mib}}
	foreign = GPU{Imported: Count{1, 5000}}
	node    = GPU{Graph: Count{1, 1000}}
)

const trim = "\ncuDeviceGetMemPool own 0\ncuMemPoolTrimTo own 0"

var calls = []call{
	{"cudaMalloc p 1000", "cudaFree p", device},
	{"cuMemAlloc_v2 p 1000", "cuMemFree_v2 p", device},
	{"cuMemAlloc p 1000", "cuMemFree p", device},
	{"cuMemAlloc p 1000", "cuMemFree_v2 p", device},
	{"cudaMallocManaged p 1000", "cudaFree p", managed},
	{"cuMemAllocManaged p 1000", "cuMemFree_v2 p", managed},
	{"cudaMallocPitch p 100 10", "cudaFree p", pitched},
	{"cudaMalloc3D p 100,2,5", "cudaFree p", pitched},
	{"cuMemAllocPitch_v2 p 100 10", "cuMemFree_v2 p", pitched},
	{"cuMemAllocPitch p 100 10", "cuMemFree p", pitched},
	{"cudaMallocAsync p 1000", "cudaFreeAsync p" + trim, async},
	{"cudaMallocAsync_ptsz p 1000", "cudaFreeAsync_ptsz p" + trim, async},
	{"cuMemAllocAsync p 1000", "cuMemFreeAsync p" + trim, async},
	{"cuMemAllocAsync_ptsz p 1000", "cuMemFreeAsync_ptsz p" + trim, async},
	{"cudaMallocAsync p 1000", "cudaFree p" + trim, async},
	{"cudaMemPoolCreate q 0\ncudaMallocFromPoolAsync p 1000 q", "cudaFreeAsync p\ncudaMemPoolDestroy q", async},
	{"cudaMemPoolCreate q 0\ncudaMallocFromPoolAsync_ptsz p 1000 q", "cudaMemPoolDestroy q\ncudaFreeAsync p", async},
	{"cuMemPoolCreate q 0\ncuMemAllocFromPoolAsync p 1000 q", "cuMemFreeAsync p\ncuMemPoolDestroy q", async},
	{"cuMemPoolCreate q 0\ncuMemAllocFromPoolAsync_ptsz p 1000 q", "cuMemPoolDestroy q\ncuMemFree_v2 p", async},
	{"cudaMallocArray p 32,4 64 32", "cudaFreeArray p", array},
	{"cudaMalloc3DArray p 32,4 64,32,0", "cudaFreeArray p", array},
	{"cudaMalloc3DArray p 16,2 64,32,4", "cudaFreeArray p", array},
	{"cuArrayCreate_v2 p 64,32,0,32,4", "cuArrayDestroy p", array},
	{"cuArrayCreate p 64,32,0,32,4", "cuArrayDestroy p", array},
	{"cuArray3DCreate_v2 p 64,8,4,32,4", "cuArrayDestroy p", array},
	{"cuArray3DCreate p 64,8,4,32,4", "cuArrayDestroy p", array},
	{"cudaMallocMipmappedArray p 32,1 64,64,0 3", "cudaFreeMipmappedArray p", mipmap},
	{"cuMipmappedArrayCreate p 64,64,0,32,1 3", "cuMipmappedArrayDestroy p", mipmap},
	{"cuMemCreate p 4M 0", "cuMemRelease p", vmm},
	{"cudaImportExternalMemory p 5000", "cudaDestroyExternalMemory p", foreign},
	{"cuImportExternalMemory p 5000", "cuDestroyExternalMemory p", foreign},
	{"cuImportExternalMemory p 5000\ncuExternalMemoryGetMappedBuffer b p 1000,96", "cuMemFree_v2 b\ncuDestroyExternalMemory p", foreign},
	{"cudaImportExternalMemory p 5000\ncudaExternalMemoryGetMappedBuffer b p 1000", "cudaFree b\ncudaDestroyExternalMemory p", foreign},
	{"cudaGraphCreate g\ncudaGraphAddMemAllocNode n g p 0 1000", "cudaGraphAddMemFreeNode n g p", node},
	{"cuGraphCreate g\ncuGraphAddMemAllocNode n g p 0 1000", "cuGraphAddMemFreeNode n g p", node},
	{"cuGraphCreate g\ncuGraphAddMemAllocNode n g p 0 1000", "cuGraphDestroy g", node},
	{"cuMulticastCreate p 4M", "cuMemRelease p", GPU{}},
	{"cuMemAddressReserve p 64M", "cuMemAddressFree p 64M", GPU{}},
}

// held returns what the last process holds on a GPU, excluding its context.
func held(t *testing.T, env []string, gpu int) GPU {
	t.Helper()
	all := usage(t, env)
	g := all[len(all)-1].GPUs[gpu]
	g.Usage -= g.Context
	g.Context = 0
	return g
}

func mustRun(t *testing.T, env []string, script string) {
	t.Helper()
	if out, err := runScript(t, env, "calls_c", script+"\n"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
}

func TestFakeCUDACountsEachAllocationAndFree(t *testing.T) {
	for _, c := range calls {
		t.Run(strings.Fields(c.allocate)[0], func(t *testing.T) {
			env := Build(t).Env(t, 2, 4<<30)
			mustRun(t, env, c.allocate)
			if got := held(t, env, 0); got != c.want {
				t.Errorf("%q: books %+v, want %+v", c.allocate, got, c.want)
			}
			mustRun(t, env, c.allocate+"\n"+c.free)
			if got, want := held(t, env, 0), (GPU{Total: c.want.Total}); got != want {
				t.Errorf("%q, %q: books %+v, want %+v", c.allocate, c.free, got, want)
			}
			if got := held(t, env, 1); got != (GPU{}) {
				t.Errorf("%q: books of the other GPU %+v", c.allocate, got)
			}
		})
	}
}

func TestFakeCUDACountsHostMemory(t *testing.T) {
	for _, c := range []struct {
		script             string
		pinned, registered Count
		host               Count
	}{
		{"cudaMallocHost p 1000\ncudaHostAlloc q 1000\ncudaFreeHost p", Count{1, 1000}, Count{}, Count{}},
		{"cuMemHostAlloc p 1000\ncuMemAllocHost_v2 q 1000\ncuMemAllocHost r 500\ncuMemFreeHost q", Count{2, 1500}, Count{}, Count{}},
		{"host h 8K\ncudaHostRegister h 8K\n!712 cudaHostRegister h 4K\nadd i h 4K\n!713 cudaHostUnregister i", Count{}, Count{1, 8192}, Count{}},
		{"host h 8K\ncudaHostRegister h 8K\ncudaHostUnregister h", Count{}, Count{}, Count{}},
		{"host h 8K\ncuMemHostRegister_v2 h 4K\nadd i h 4K\ncuMemHostRegister i 100\ncuMemHostUnregister h", Count{}, Count{1, 100}, Count{}},
		{"cuMemCreate h 2M host\ncuMemCreate i 4M host\ncuMemRelease h", Count{}, Count{}, Count{1, 4 * mib}},
	} {
		env := Build(t).Env(t, 1, 4<<30)
		mustRun(t, env, c.script)
		p := usage(t, env)[0]
		if p.Pinned != c.pinned || p.Registered != c.registered || p.VMMHost != c.host || held(t, env, 0) != (GPU{}) {
			t.Errorf("%q: books %+v", c.script, p)
		}
	}
}

func TestFakeCUDARejectsWhatTheDriverRejects(t *testing.T) {
	for _, script := range []string{
		"!2 cudaMalloc p 900G", "!2 cuMemAlloc_v2 p 900G", "!2 cuMemAllocPitch_v2 p 1G 900", "!2 cudaMallocPitch p 1G 900",
		"!2 cudaMallocAsync p 900G", "!2 cuMemAllocAsync_ptsz p 900G", "!2 cuMemCreate p 900G 0", "!2 cuArray3DCreate_v2 p 16384,16384,16,32,4",
		"!2 cudaMalloc3D p 1G,100,9", "!2 cudaMalloc3DArray p 32,4 16384,16384,16", "!2 cuMemAlloc p 3G",
		"!2 cuMipmappedArrayCreate p 16384,16384,16,32,4 2", "!2 cudaMallocManaged p 900G", "!2 cudaMallocHost p 900T",
		"!1 cudaFree 0x7f0000123400", "!1 cuMemFreeAsync 0x7f0000123400", "!1 cuArrayDestroy 7", "!1 cuMemRelease 7", "!1 cuMemCreate p 4097 0",
		"!101 cuMemCreate p 4M 5", "!101 cuMemPoolCreate p 5", "!1 cuMemPoolDestroy 7", "!1 cuIpcCloseMemHandle 4096", "!1 cuMemUnmap 2M 2M",
		"!1 cuMipmappedArrayCreate p 4,4,0,32,1 9", "!201 cuCtxGetDevice d", "!101 cudaSetDevice 9", "!1 cuDestroyExternalMemory 7",
		"!1 cuGraphAddMemFreeNode n 7 4096", "cuMemPoolCreate q 0,4M\n!2 cuMemAllocFromPoolAsync p 5M q",
		"cudaMalloc p 10\ncudaFree p\n!1 cudaFree p", "cudaMallocAsync p 10\ncudaFreeAsync p\n!1 cudaFreeAsync p",
	} {
		mustRun(t, Build(t).Env(t, 1, 4<<30), script)
	}
}

func TestFakeCUDAPhysicalMemoryLivesUntilReleasedAndUnmapped(t *testing.T) {
	const create = "cuMemCreate h 4M 1,fd\ncuMemAddressReserve v 64M\ncuMemMap v 4M 0 h\ncuMemSetAccess v 4M 1\n"
	some := GPU{Usage: 4 * mib, VMM: Count{1, 4 * mib}}
	for name, c := range map[string]struct {
		script string
		want   GPU
	}{
		"released but mapped":     {"cuMemRelease h\n!1 cuMemRelease h", some},
		"unmapped but referenced": {"cuMemUnmap v 4M", some},
		"as PyTorch frees":        {"cuMemUnmap v 4M\ncuMemRelease h\ncuMemAddressFree v 64M", GPU{}},
		"as NCCL frees": {"cuMemRetainAllocationHandle r v\nis r h\ncuMemRelease h\ncuMemUnmap v 4M\ncuMemRelease r\n" +
			"cuMemAddressFree v 64M\n!1 cuMemRelease h", GPU{}},
		"before the last step of NCCL":    {"cuMemRetainAllocationHandle r v\ncuMemRelease h\ncuMemUnmap v 4M", some},
		"retained through the mapping":    {"cuMemRelease h\ncuMemRetainAllocationHandle r v\ncuMemUnmap v 4M", some},
		"mapped twice":                    {"add w v 8M\ncuMemMap w 4M 0 h\ncuMemRelease h\ncuMemUnmap v 4M", some},
		"one unmap for two mappings":      {"add w v 4M\ncuMemMap w 4M 0 h\ncuMemRelease h\ncuMemUnmap v 8M", GPU{}},
		"a part of a mapping":             {"!1 cuMemUnmap v 2M\n!208 cuMemMap v 4M 0 h\n!1 cuMemAddressFree v 64M", some},
		"imported by the same process":    {"cuMemExportToShareableHandle FILE h\ncuMemImportFromShareableHandle i FILE\nis i h\ncuMemUnmap v 4M\ncuMemRelease h", some},
		"survives the context":            {"cuDevicePrimaryCtxReset_v2 1\ncuDevicePrimaryCtxReset_v2 0", some},
		"device of the properties counts": {"cudaSetDevice 0", some},
	} {
		env := Build(t).Env(t, 2, 4<<30)
		mustRun(t, env, create+strings.ReplaceAll(c.script, "FILE", t.TempDir()+"/fd"))
		if got := held(t, env, 1); got != c.want {
			t.Errorf("%s: books %+v, want %+v", name, got, c.want)
		}
		if got := held(t, env, 0); got != (GPU{}) {
			t.Errorf("%s: books of the other GPU %+v", name, got)
		}
	}
}

func TestFakeCUDAPoolsKeepTheirReserve(t *testing.T) {
	const fill = "cuDeviceGetDefaultMemPool q 0\ncudaMallocAsync a 20M\ncudaMallocAsync b 20M\n"
	for name, c := range map[string]struct {
		script string
		want   GPU
	}{
		"chunks hold what is used":       {"", GPU{Usage: 64 * mib, PoolReserved: 64 * mib, Async: Count{2, 40 * mib}}},
		"free keeps the reserve":         {"cudaFreeAsync a\ncudaFreeAsync b", GPU{Usage: 64 * mib, PoolReserved: 64 * mib}},
		"reserve is used again":          {"cudaFreeAsync a\ncudaMallocAsync c 16M", GPU{Usage: 64 * mib, PoolReserved: 64 * mib, Async: Count{2, 36 * mib}}},
		"trim keeps the requested bytes": {"cudaFreeAsync a\ncudaFreeAsync b\ncuMemPoolTrimTo q 40M", GPU{Usage: 32 * mib, PoolReserved: 32 * mib}},
		"trim keeps used memory":         {"cudaFreeAsync b\ncudaMemPoolTrimTo q 0", GPU{Usage: 32 * mib, PoolReserved: 32 * mib, Async: Count{1, 20 * mib}}},
		"synchronizing releases":         {"cudaFreeAsync a\ncudaFreeAsync b\ncudaStreamSynchronize", GPU{}},
		"synchronizing keeps threshold":  {"cuMemPoolSetAttribute q 4 40M\ncudaFreeAsync a\ncudaFreeAsync b\ncudaDeviceSynchronize", GPU{Usage: 32 * mib, PoolReserved: 32 * mib}},
		"attributes": {"cuMemPoolGetAttribute q 5 r\nis r 64M\ncudaFreeAsync b\ncudaMemPoolGetAttribute q 7 u\nis u 20M\ncuMemPoolGetAttribute q 8 h\nis h 40M\n" +
			"cuMemPoolGetAttribute q 6 i\nis i 64M", GPU{Usage: 64 * mib, PoolReserved: 64 * mib, Async: Count{1, 20 * mib}}},
		"another pool of the device": {"cudaMemPoolCreate r 0\ncudaDeviceSetMemPool 0 r\ncudaMallocAsync c 1M\ncudaDeviceGetMemPool s 0\nis s r\n" +
			"cudaFreeAsync c\ncudaMemPoolDestroy r\ncudaDeviceGetMemPool s 0\nis s q", GPU{Usage: 64 * mib, PoolReserved: 64 * mib, Async: Count{2, 40 * mib}}},
		"threshold of a created pool": {"cudaMemPoolCreate r 0\ncuMemPoolSetAttribute r 4 40M\ncuMemAllocFromPoolAsync c 100M r\n" +
			"cuMemFreeAsync c\ncuCtxSynchronize", GPU{Usage: 96 * mib, PoolReserved: 96 * mib, Async: Count{2, 40 * mib}}},
		"reset frees everything": {"cudaDeviceReset", GPU{}},
	} {
		env := Build(t).Env(t, 1, 4<<30)
		mustRun(t, env, fill+c.script)
		if got := held(t, env, 0); got != c.want {
			t.Errorf("%s: books %+v, want %+v", name, got, c.want)
		}
	}
}

func TestFakeCUDAGraphsHoldMemoryFromLaunchToTrim(t *testing.T) {
	const node = "cudaGraphCreate g\ncudaGraphAddMemAllocNode n g p 0 3M\ncudaGraphInstantiate e g\n"
	launched := GPU{Usage: 4 * mib, GraphReserved: 4 * mib, Graph: Count{1, 3 * mib}}
	for script, want := range map[string]GPU{
		"": {Graph: Count{1, 3 * mib}},
		"cudaGraphLaunch e\ncudaDeviceGraphMemTrim 0":                          launched,
		"cuGraphLaunch_ptsz e\ncudaFree p":                                     {Usage: 4 * mib, GraphReserved: 4 * mib},
		"cudaGraphLaunch e\ncudaFreeAsync p\ncuDeviceGraphMemTrim 0":           {},
		"cudaGraphLaunch e\ncudaGraphExecDestroy e\ncudaGraphDestroy g":        launched,
		"cudaGraphLaunch e\ncudaGraphLaunch e\ncudaDeviceReset":                {},
		"cudaGraphAddMemFreeNode m g p\n!1 cudaGraphAddMemFreeNode m g p":      {},
		"cudaGraphExecDestroy e\ncudaGraphAddMemFreeNode m g p\n!1 cudaFree p": {},
	} {
		env := Build(t).Env(t, 1, 4<<30)
		mustRun(t, env, node+script)
		if got := held(t, env, 0); got != want {
			t.Errorf("%q: books %+v, want %+v", script, got, want)
		}
	}
}

const everything = "cuMemAlloc_v2 a 1000\ncuMemAllocManaged b 10\ncuMemAllocAsync c 100\ncuArray3DCreate_v2 d 64,0,0,32,1\ncuMemAlloc e 7\n" +
	"cuMemHostAlloc f 50\nhost g 4K\ncuMemHostRegister_v2 g 4K\ncuImportExternalMemory h 10\ncuGraphCreate i\ncuGraphAddMemAllocNode j i k 0 10\n"

func TestFakeCUDADestroyingContextsFreesTheirMemory(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		context bool
	}{
		"destroy":           {"cuInit\ncuCtxCreate_v2 x 0\n" + everything + "cuCtxDestroy_v2 x\n!201 cuCtxGetDevice d", false},
		"destroy, old":      {"cuInit\ncuCtxCreate x 0\n" + everything + "cuCtxDestroy x", false},
		"destroy, affinity": {"cuInit\ncuCtxCreate_v3 x 0\n" + everything + "cuCtxDestroy_v2 x", false},
		"last release": {"cuInit\ncuDevicePrimaryCtxRetain x 0\ncuDevicePrimaryCtxRetain x 0\ncuCtxSetCurrent x\n" + everything +
			"cuDevicePrimaryCtxRelease_v2 0\ncuDevicePrimaryCtxRelease 0\n!709 cuMemAlloc_v2 z 1", false},
		"reset":         {everything + "cuDevicePrimaryCtxReset_v2 0", false},
		"reset, old":    {everything + "cuDevicePrimaryCtxReset 0", false},
		"runtime reset": {"cudaFree 0\n" + everything + "cudaDeviceReset", false},
		"thread exit":   {"cudaFree 0\n" + everything + "cudaThreadExit", false},
		"one of two":    {"cuMemAlloc_v2 keep 5\ncuMemAllocAsync too 5\ncuCtxCreate_v2 x 0\n" + everything + "cuCtxDestroy_v2 x\ncuMemAlloc_v2 more 7", true},
		"popped":        {"cuMemAlloc_v2 keep 5\ncuMemAllocAsync too 5\ncuCtxCreate_v2 x 0\n" + everything + "cuCtxPopCurrent_v2 y\nis y x\ncuMemAlloc_v2 more 7\ncuCtxDestroy_v2 x", true},
	} {
		env := Build(t).Env(t, 1, 4<<30)
		mustRun(t, env, c.script)
		got := held(t, env, 0)
		got.Total = Count{}
		want := GPU{}
		if c.context {
			want = GPU{Usage: 34 * mib, PoolReserved: 32 * mib, Async: Count{1, 5}, Device: Count{2, 12}}
		}
		p := usage(t, env)[0]
		if got != want || p.Pinned != (Count{}) || p.Registered != (Count{}) || (p.GPUs[0].Context != 0) != c.context {
			t.Errorf("%s: books %+v of %+v, want %+v", name, got, p, want)
		}
	}
}

func TestFakeCUDAEachThreadHasItsDevice(t *testing.T) {
	env := Build(t).Env(t, 4, 4<<30)
	mustRun(t, env, "cudaSetDevice 3\ncudaMalloc a 1\nthreads 2\ncudaGetDevice d\nis d 0\ncudaMalloc b 10\ncudaSetDevice 2\ncudaMallocAsync c 100\n"+
		"cuMemAlloc_v2 d 1000\nend\ncudaMalloc e 2\ncudaInitDevice 1\ncudaGetDevice d\nis d 3\n"+
		"cuDevicePrimaryCtxRetain c 1\ncuCtxPushCurrent_v2 c\ncuMemAlloc_v2 f 7\ncuCtxPopCurrent o\ncuCtxPushCurrent c\ncuMemAlloc_v2 g 7\ncuCtxPopCurrent_v2 o\ncuMemAlloc_v2 h 30")
	got := usage(t, env)[0].GPUs
	for i, want := range []Count{{2, 20}, {2, 14}, {2, 2000}, {3, 33}} {
		if got[i].Device != want || (got[i].Async == Count{2, 200}) != (i == 2) {
			t.Errorf("GPU %d: books %+v, want %+v", i, got[i], want)
		}
	}
}
