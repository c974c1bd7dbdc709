// SPDX-License-Identifier: Apache-2.0

package fakecuda

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestFakeCUDASharedMemoryIsNotCountedTwice(t *testing.T) {
	for name, c := range map[string]struct{ export, open, close string }{
		"runtime IPC": {"cudaMalloc p 3M\ncudaIpcGetMemHandle FILE p", "cudaIpcOpenMemHandle o FILE", "cudaIpcCloseMemHandle o"},
		"driver IPC":  {"cuMemAlloc_v2 p 3M\ncuIpcGetMemHandle FILE p", "cuIpcOpenMemHandle_v2 o FILE", "cuIpcCloseMemHandle o"},
		"old IPC":     {"cuMemAlloc_v2 p 3M\ncuIpcGetMemHandle FILE p", "cuIpcOpenMemHandle o FILE", "cuIpcCloseMemHandle o"},
		"opened twice": {"cuMemAlloc_v2 p 3M\ncuIpcGetMemHandle FILE p", "cudaIpcOpenMemHandle o FILE\ncudaIpcOpenMemHandle q FILE\nis o q",
			"cudaIpcCloseMemHandle o\ncudaIpcCloseMemHandle o\n!1 cudaIpcCloseMemHandle o"},
		"pool": {"cudaMallocAsync p 3M\ncudaMemPoolExportPointer FILE p", "cuDeviceGetMemPool m 0\ncudaMemPoolImportPointer o m FILE", "cudaFreeAsync o"},
		"pool, driver": {"cuMemAllocAsync p 3M\ncuMemPoolExportPointer FILE p", "cuMemPoolCreate m 0\ncuMemPoolImportPointer o m FILE",
			"cuMemFreeAsync o"},
		"vmm": {"cuMemCreate p 4M 0,fd\ncuMemExportToShareableHandle FILE p",
			"cuMemImportFromShareableHandle o FILE\ncuMemAddressReserve v 4M\ncuMemMap v 4M 0 o", "cuMemUnmap v 4M\ncuMemRelease o"},
	} {
		t.Run(name, func(t *testing.T) {
			env := Build(t).Env(t, 1, 4<<30)
			shared := t.TempDir() + "/shared"
			script := func(s string) string { return strings.ReplaceAll(s, "FILE", shared) }
			owner := start(t, env, "calls_c", script(c.export)+"\nready\nwait\n")
			owner.expect(fmt.Sprint("ready ", owner.Process.Pid))
			guest := start(t, env, "calls_c", "cudaFree 0\n"+script(c.open)+"\nprint opened\nwait\n"+c.close+"\nprint closed\nwait\n")
			guest.expect("opened")
			books := usage(t, env)
			size, want := books[0].GPUs[0].Usage-context, uint64(4*mib)
			if strings.HasPrefix(name, "pool") {
				want = 32 * mib // pools take chunks
			}
			if got := held(t, env, 0); got.Imported.Objects != 1 || got.Imported.Bytes > size || got.Imported.Bytes < 3*mib || got.Usage != 0 || size != want {
				t.Errorf("books of the guest %+v, of the owner %+v", got, books[0])
			}
			if got := nvml(t, env)[0]; got.Used != 2*context+size {
				t.Errorf("NVML reports %+v, want the memory once", got)
			}
			guest.next()
			guest.expect("closed")
			if got := held(t, env, 0); got != (GPU{}) {
				t.Errorf("books of the guest after closing %+v", got)
			}
			owner.Process.Kill()
			owner.Wait()
			if out, err := runScript(t, env, "calls_c", "cudaFree 0\n"+script(c.open)+"\n"); err == nil {
				t.Errorf("the handle of an exited process opens: %s", out)
			}
		})
	}
	env := Build(t).Env(t, 1, 4<<30)
	own := t.TempDir() + "/own"
	mustRun(t, env, "cudaMalloc p 10\ncudaIpcGetMemHandle "+own+" p\n!201 cudaIpcOpenMemHandle o "+own)
}

func TestFakeCUDABooksSurviveRandomCalls(t *testing.T) {
	for _, program := range []string{"calls_c", "calls_static"} {
		env := Build(t).Env(t, 4, 16<<30)
		p := startCommand(t, env, program, "--random", "7", "8000", "--threads", "8", "--gpus", "4", "--free", "--wait")
		p.expect("random 7 8000 done")
		for i, g := range usage(t, env)[0].GPUs {
			if got, want := g, (GPU{Usage: context + g.PoolReserved, Context: context, Total: g.Total, PoolReserved: g.PoolReserved}); got != want || g.Total.Objects == 0 {
				t.Errorf("%s, GPU %d, all freed: books %+v, want %+v", program, i, got, want)
			}
		}
		if b := usage(t, env)[0]; b.Pinned != (Count{}) || b.Registered != (Count{}) || b.VMMHost != (Count{}) || b.PinnedTotal == (Count{}) {
			t.Errorf("%s, all freed: books %+v", program, b)
		}
		p.Process.Kill()

		p = startCommand(t, env, program, "--random", "8", "8000", "--threads", "8", "--gpus", "4", "--wait")
		p.expect("random 8 8000 done")
		for i, g := range usage(t, env)[1].GPUs {
			sum := g.Device.Bytes + g.VMM.Bytes + g.Array.Bytes + g.PoolReserved + g.GraphReserved
			pages := 2 * mib * (g.Device.Objects + g.Array.Objects)
			if g.Usage-context < sum || g.Usage-context > sum+pages || g.Async.Bytes > g.PoolReserved {
				t.Errorf("%s, GPU %d: books %+v do not add up", program, i, g)
			}
			for kind, c := range map[string]Count{"device": g.Device, "managed": g.Managed, "async": g.Async, "vmm": g.VMM, "array": g.Array,
				"imported": g.Imported, "graph": g.Graph} {
				if c.Objects == 0 {
					t.Errorf("%s, GPU %d: nothing live of kind %s", program, i, kind)
				}
			}
		}
	}
}

func TestFakeCUDAKilledProcessFreesEverything(t *testing.T) {
	env := Build(t).Env(t, 2, 16<<30)
	mustRun(t, env, "cuInit") // creates the shared file
	for i := range 5 {
		p := startCommand(t, env, "calls_c", "--random", fmt.Sprint(i), "100000000", "--threads", "2", "--gpus", "2")
		for begin := time.Now(); len(usage(t, env)) <= i+1 || usage(t, env)[i+1].GPUs[1].Total.Objects < 50; time.Sleep(time.Millisecond) {
			if time.Since(begin) > 10*time.Second {
				t.Fatal("the process does not allocate")
			}
		}
		p.Process.Kill()
		p.Wait()
		for g, gpu := range nvml(t, env) {
			if gpu.Used != 0 || len(gpu.Processes) != 0 {
				t.Errorf("GPU %d after the kill: %+v", g, gpu)
			}
		}
	}
	mustRun(t, env, "cudaMalloc p 15G")
}

func TestFakeCUDAMIGInstancesAreSeparateDevices(t *testing.T) {
	env := append(Build(t).Env(t, 2, 4<<30), "FAKECUDA_MIG=1")
	list := func() string {
		cmd := exec.Command("python3", "-c", nvmlBegin+`
for i in range(2):
    g = ctypes.c_void_p(); check(n.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(g)))
    for k in range(2):
        d, uuid, gi, have = ctypes.c_void_p(), ctypes.create_string_buffer(96), ctypes.c_uint(), ctypes.c_uint(9)
        check(n.nvmlDeviceGetMigDeviceHandleByIndex(g, k, ctypes.byref(d)))
        check(n.nvmlDeviceGetUUID(d, uuid, 96)); check(n.nvmlDeviceGetGpuInstanceId(d, ctypes.byref(gi)))
        rows = (Info * 9)()
        check(n.nvmlDeviceGetComputeRunningProcesses_v3(d, ctypes.byref(have), rows))
        print(uuid.value.decode(), gi.value, *["%d %d" % (r.bytes, r.gi) for r in rows[:have.value]])
`)
		cmd.Env, cmd.Stderr = env, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	before := strings.Split(strings.TrimSpace(list()), "\n")
	if len(before) != 4 || !strings.HasPrefix(before[3], "MIG-") {
		t.Fatalf("NVML lists %q", before)
	}
	uuid, _, _ := strings.Cut(before[3], " ")
	p := start(t, append(env, "CUDA_VISIBLE_DEVICES="+uuid+",0"), "calls_c", "!101 cudaSetDevice 1\ncudaMalloc p 3M\nready\nwait\n")
	p.expect(fmt.Sprint("ready ", p.Process.Pid))
	want := fmt.Sprintf("%s\n%s\n%s\n%s %d 2\n", before[0], before[1], before[2], before[3], context+4*mib)
	if got := list(); got != want {
		t.Errorf("NVML lists\n%s\nwant\n%s", got, want)
	}
	gpus := nvml(t, env)
	if len(gpus) != 2 || gpus[1].Used != context+4*mib || gpus[0].Used != 0 || gpus[1].Total != 8<<30 {
		t.Errorf("NVML reports for the whole GPUs %+v", gpus)
	}
	q := start(t, env, "calls_c", "!101 cudaSetDevice 1\ncudaMalloc p 1\nready\nwait\n")
	q.expect(fmt.Sprint("ready ", q.Process.Pid))
	if got := nvml(t, env)[0].Used; got != context+2*mib {
		t.Errorf("without CUDA_VISIBLE_DEVICES GPU 0 has %d", got)
	}
}
