// SPDX-License-Identifier: Apache-2.0

package fakecuda

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	mib     = 1 << 20
	context = 300 * mib
)

// target is alloc_c running a script; next continues it at a "wait" line.
type target struct {
	*exec.Cmd
	t     *testing.T
	out   *bufio.Reader
	stdin io.WriteCloser
}

func start(t *testing.T, env []string, program, script string) *target {
	t.Helper()
	file := t.TempDir() + "/script"
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return startCommand(t, env, program, file)
}

func startCommand(t *testing.T, env []string, program string, args ...string) *target {
	t.Helper()
	cmd := exec.Command(Build(t).Program(program), args...)
	cmd.Env = env
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &target{cmd, t, bufio.NewReader(out), stdin}
}

func (p *target) expect(line string) {
	p.t.Helper()
	got, err := p.out.ReadString('\n')
	if err != nil || strings.TrimSuffix(got, "\n") != line {
		p.t.Fatalf("%s printed %q (%v), want %q", p.Path, got, err, line)
	}
}

func (p *target) next() { fmt.Fprintln(p.stdin) }

func runScript(t *testing.T, env []string, program, script string) (string, error) {
	t.Helper()
	cmd := exec.Command(Build(t).Program(program))
	cmd.Env = env
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func usage(t *testing.T, env []string) []Process {
	t.Helper()
	p, err := ReadUsage(env)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const nvmlBegin = `
import ctypes, json
class Info(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]
class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(n, ctypes.c_ulonglong) for n in ("total", "reserved", "free", "used")]
def check(result):
    assert result == 0, result
n = ctypes.CDLL("libnvidia-ml.so.1")
check(n.nvmlInit_v2())
`

// nvmlScript prints what the fake NVML reports, one JSON object per GPU.
const nvmlScript = nvmlBegin + `
count = ctypes.c_uint()
check(n.nvmlDeviceGetCount_v2(ctypes.byref(count)))
for i in range(count.value):
    d, uuid, have = ctypes.c_void_p(), ctypes.create_string_buffer(96), ctypes.c_uint(0)
    check(n.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(d)))
    check(n.nvmlDeviceGetUUID(d, uuid, 96))
    result = n.nvmlDeviceGetComputeRunningProcesses_v3(d, ctypes.byref(have), None)
    assert result == (7 if have.value else 0), result
    rows = (Info * 64)()
    have.value = 64
    check(n.nvmlDeviceGetComputeRunningProcesses_v3(d, ctypes.byref(have), rows))
    memory = Memory(version=40 | 2 << 24)
    check(n.nvmlDeviceGetMemoryInfo_v2(d, ctypes.byref(memory)))
    print(json.dumps({"UUID": uuid.value.decode(), "Used": memory.used, "Total": memory.total,
        "Processes": {str(r.pid): r.bytes for r in rows[:have.value]}}))
`

type nvmlGPU struct {
	UUID        string
	Used, Total uint64
	Processes   map[string]uint64
}

func nvml(t *testing.T, env []string) []nvmlGPU {
	t.Helper()
	cmd := exec.Command("python3", "-c", nvmlScript)
	cmd.Env, cmd.Stderr = env, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var gpus []nvmlGPU
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var g nvmlGPU
		if err := d.Decode(&g); err != nil {
			t.Fatal(err)
		}
		gpus = append(gpus, g)
	}
	return gpus
}

func TestFakeCUDABooksAgreeWithNVML(t *testing.T) {
	env := Build(t).Env(t, 2, 4<<30)
	small := start(t, env, "alloc_c", "malloc a 100\nmalloc b 1000000\nmalloc c 512\nready\nwait\nfree a\nfree b\nfree c\nprint freed\nwait\n")
	small.expect(fmt.Sprint("ready ", small.Process.Pid))
	large := start(t, env, "alloc_static", "device 1\nmalloc a 2097153\nmanaged m 5\npinned p 4096\nready\nwait\nprint done\nkill\n")
	large.expect(fmt.Sprint("ready ", large.Process.Pid))

	want := []map[string]uint64{
		{fmt.Sprint(small.Process.Pid): context + 2*mib},
		{fmt.Sprint(large.Process.Pid): context + 4*mib},
	}
	for i, g := range nvml(t, env) {
		if fmt.Sprint(g.Processes) != fmt.Sprint(want[i]) || g.Total != 4<<30 {
			t.Errorf("GPU %d: NVML reports %v, want %v", i, g, want[i])
		}
	}
	books := usage(t, env)
	if len(books) != 2 || books[0].PID != uint32(small.Process.Pid) || books[1].PID != uint32(large.Process.Pid) {
		t.Fatalf("books of %+v, want processes %d and %d", books, small.Process.Pid, large.Process.Pid)
	}
	if got, want := books[0].GPUs[0], (GPU{Usage: context + 2*mib, Context: context, Device: Count{3, 1000612}, Total: Count{3, 1000612}}); got != want {
		t.Errorf("first process: %+v, want %+v", got, want)
	}
	if got, want := books[1].GPUs[1], (GPU{Usage: context + 4*mib, Context: context, Device: Count{1, 2097153}, Managed: Count{1, 5}, Total: Count{2, 2097158}}); got != want {
		t.Errorf("second process: %+v, want %+v", got, want)
	}
	if got := books[1].Pinned; got != (Count{1, 4096}) {
		t.Errorf("pinned %+v", got)
	}

	small.next()
	small.expect("freed")
	if got := usage(t, env)[0].GPUs[0]; got.Usage != context || got.Device != (Count{}) {
		t.Errorf("after the frees: %+v, want only the context", got)
	}
	large.next()
	large.expect("done")
	large.Wait()
	gpus := nvml(t, env)
	if len(gpus[1].Processes) != 0 || gpus[1].Used != 0 {
		t.Errorf("NVML still lists the killed process: %+v", gpus[1])
	}
	if got := usage(t, env)[1]; !got.Ended || got.GPUs[1].Device != (Count{1, 2097153}) {
		t.Errorf("books of the killed process: %+v, want its last counts", got)
	}
}

func TestFakeCUDARefusesBeyondCapacity(t *testing.T) {
	env := Build(t).Env(t, 1, 1<<30)
	p := start(t, env, "alloc_c", "malloc a 4096\nready\nwait\nfail 900000000\nprint failed\nwait\nmalloc b 700000000\nprint fits\nwait\n")
	p.expect(fmt.Sprint("ready ", p.Process.Pid))
	before := usage(t, env)[0]
	p.next()
	p.expect("failed")
	if after := usage(t, env)[0]; fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("a failed call changed the books from %+v to %+v", before, after)
	}
	p.next()
	p.expect("fits")
	if out, err := runScript(t, env, "alloc_c", "fail 1000\n"); err != nil {
		t.Errorf("second process on a full GPU: %v %s", err, out)
	}
	p.Process.Kill()
	p.Wait()
	if out, err := runScript(t, env, "alloc_c", "malloc a 700000000\n"); err != nil {
		t.Errorf("memory of a killed process was not freed: %v %s", err, out)
	}
}

func TestFakeCUDAZeroSizesAndBadPointers(t *testing.T) {
	env := Build(t).Env(t, 1, 4<<30)
	if out, err := runScript(t, env, "alloc_c", "malloc0\n"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if got := usage(t, env); len(got) != 0 {
		t.Errorf("cudaMalloc(0) started the driver: %+v", got)
	}
	script := "free0\nprint on\nmalloc a 10\nfree a\nbadfree\ndriver_malloc d 10\ndriver_free d\n" +
		"driver_managed m 10\ndriver_free m\ndriver_pinned p 10\ndriver_freehost p\ndriver_mallochost q 10\ndriver_freehost q\n" +
		"mallochost h 10\nfreehost h\nmalloc k 5\nreset\nmalloc l 7\n"
	if out, err := runScript(t, env, "alloc_c", script); err != nil || out != "on\n" {
		t.Fatalf("%v %s", err, out)
	}
	got := usage(t, env)[0]
	if got.GPUs[0].Device != (Count{1, 7}) || got.GPUs[0].Managed != (Count{}) || got.Pinned != (Count{}) || got.PinnedTotal != (Count{3, 30}) {
		t.Errorf("books %+v, want one allocation of 7 bytes left", got)
	}
	if out, err := runScript(t, env, "alloc_c", "malloc a 10\nfree a\nfree a\n"); err == nil || !strings.Contains(out, "free a: result (1)") {
		t.Errorf("double free: %v %q, want result 1", err, out)
	}
}

func TestFakeCUDAThreadsKeepExactBooks(t *testing.T) {
	env := Build(t).Env(t, 1, 8<<30)
	script := "threads 8\nrepeat 500\nmalloc a 70000\nmalloc b 3000000\nmalloc c 100\nfree b\nfree a\nfree c\nend\nmalloc d 1000\nend\n"
	if out, err := runScript(t, env, "alloc_c", script); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if got := usage(t, env)[0].GPUs[0]; got.Device != (Count{8, 8000}) || got.Total.Objects != 8*(3*500+1) {
		t.Errorf("books %+v, want 8 allocations of 1000 bytes and %d in total", got, 8*(3*500+1))
	}
}

func TestFakeCUDAPrivateTableAvoidsExports(t *testing.T) {
	// With FAKECUDA_SHUT, every exported stub fails once cuInit has returned.
	env := append(Build(t).Env(t, 1, 4<<30), "FAKECUDA_SHUT=1")
	if out, err := runScript(t, env, "alloc_c", "malloc a 10\n"); err == nil || !strings.Contains(out, "result (4)") {
		t.Errorf("through the exports: %v %q, want result 4", err, out)
	}
	env = append(env, "FAKECUDA_PRIVATE=1")
	if out, err := runScript(t, env, "alloc_c", "malloc a 10\nfree a\npinned p 10\nmanaged m 10\nmalloc b 3\n"); err != nil {
		t.Errorf("through the private table: %v %q", err, out)
	}
	if got := usage(t, env)[1].GPUs[0].Device; got != (Count{1, 3}) {
		t.Errorf("books %+v, want one allocation of 3 bytes", got)
	}
}

func TestFakeCUDAVisibleDevices(t *testing.T) {
	env := Build(t).Env(t, 3, 4<<30)
	gpus := nvml(t, env)
	env = append(env, "CUDA_VISIBLE_DEVICES=2,"+gpus[0].UUID+",7,1")
	if out, err := runScript(t, env, "alloc_c", "malloc a 10\ndevice 1\nmalloc b 20\n"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	got := usage(t, env)[0].GPUs
	if got[2].Device.Bytes != 10 || got[0].Device.Bytes != 20 || got[1] != (GPU{}) {
		t.Errorf("books %+v, want 10 bytes on GPU 2 and 20 on GPU 0", got)
	}
	if out, err := runScript(t, env, "alloc_c", "device 2\n"); err == nil || !strings.Contains(out, "result (101)") {
		t.Errorf("device behind an invalid entry: %v %q, want result 101", err, out)
	}
}

func TestFakeCUDAReportsHostPIDsOfContainers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root for a PID namespace")
	}
	env := Build(t).Env(t, 1, 4<<30)
	cmd := exec.Command(Build(t).Program("alloc_c"))
	cmd.Env = env
	cmd.Stdin = strings.NewReader("malloc a 10\nready\nwait\n")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("no PID namespace: %v", err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready 1\n" {
		t.Fatalf("printed %q, want pid 1", line)
	}
	if got := nvml(t, env)[0].Processes; got[fmt.Sprint(cmd.Process.Pid)] != context+2*mib {
		t.Errorf("NVML reports %v, want host pid %d", got, cmd.Process.Pid)
	}
}

func TestFakeCUDAExecAndForkDropTheMemory(t *testing.T) {
	env := Build(t).Env(t, 1, 4<<30)
	second := t.TempDir() + "/second"
	if err := os.WriteFile(second, []byte("ready\nwait\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, env, "alloc_c", "malloc a 10\nexec "+second+"\n")
	p.expect(fmt.Sprint("ready ", p.Process.Pid))
	if got := nvml(t, env)[0]; got.Used != 0 {
		t.Errorf("after exec NVML reports %+v", got)
	}
	fork := `import ctypes, os
r = ctypes.CDLL("libcudart.so.12"); p = ctypes.c_void_p()
assert r.cudaMalloc(ctypes.byref(p), 10) == 0
pid = os.fork()
if pid == 0: os._exit(r.cudaMalloc(ctypes.byref(p), 10))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), r.cudaFree(p))`
	cmd := exec.Command("python3", "-c", fork)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "3 0\n" {
		t.Errorf("forked child and its parent: %q %v, want 3 (not initialized) and 0", out, err)
	}
}

func TestFakeCUDALatency(t *testing.T) {
	env := append(Build(t).Env(t, 1, 4<<30), "FAKECUDA_LATENCY_US=2000")
	begin := time.Now()
	if out, err := runScript(t, env, "alloc_c", "repeat 50\nmalloc a 10\nfree a\nend\n"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("50 allocations of 2 ms took %v", took)
	}
}

func TestFakeCUDASpeed(t *testing.T) {
	env := Build(t).Env(t, 1, 8<<30)
	for _, args := range []string{"bench_c cudart 30 500000", "bench_c cuda 30 500000", "bench_c cuda 30 500000 --size 4194304",
		"bench_c cudart 30 500000 --live 1000000 --sites 10000", "bench_c cudart 30 200000 --threads 2",
		"bench.py cudart 30 50000", "bench.py cuda 30 50000"} {
		words := strings.Fields(args)
		cmd := exec.Command(Build(t).Program(words[0]), words[1:]...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		var ns float64
		var pairs int
		if _, scan := fmt.Sscanf(string(out), "ns_per_pair %f\npairs %d", &ns, &pairs); err != nil || scan != nil || pairs == 0 {
			t.Errorf("%s: %v %s", args, err, out)
		}
		t.Logf("%s: %.0f ns per pair", args, ns)
	}
}

// The tails of a program that sleeps 2 ms in each allocation are known: the clock's cost is
// subtracted, and a bucket of the histogram is 1 % wide.
func TestTimesOfSingleCalls(t *testing.T) {
	cmd := exec.Command(Build(t).Program("bench_c"), "cuda", "30", "10", "--tails", "--threads", "2")
	cmd.Env = append(Build(t).Env(t, 1, 8<<30), "FAKECUDA_LATENCY_US=2000")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ns := make(map[string]float64)
	for line := range strings.Lines(string(out)) {
		var name string
		var value float64
		if n, _ := fmt.Sscan(line, &name, &value); n == 2 {
			ns[name] = value
		}
	}
	for _, name := range []string{"alloc_p50", "alloc_p999", "pair_p50", "pair_p999"} {
		if ns[name] < 1.98e6 || ns[name] > 1e9 {
			t.Errorf("%s is %.0f ns, expected at least 2 ms", name, ns[name])
		}
	}
	if ns["free_p50"] > 1e6 || ns["alloc_p999"] < ns["alloc_p50"] {
		t.Errorf("free_p50 %.0f, alloc_p50 %.0f, alloc_p999 %.0f", ns["free_p50"], ns["alloc_p50"], ns["alloc_p999"])
	}
}
