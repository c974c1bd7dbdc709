// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/probes"
)

// pythonCUDA begins the programs below.
const pythonCUDA = `
import ctypes, os, sys, threading, time
def load():
    global cudart
    cudart = ctypes.CDLL("libcudart.so.12")
def check(result):
    assert result == 0, result
def set_device(n):
    check(cudart.cudaSetDevice(n))
def malloc(size):
    p = ctypes.c_void_p()
    check(cudart.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size)))
    return p
def free(p):
    check(cudart.cudaFree(p))
def say(text):
    print(text, flush=True)
    sys.stdin.readline()
def at_once(function, count):
    threads = [threading.Thread(target=function, args=(n,), daemon=True) for n in range(count)]
    for t in threads: t.start()
    return threads
`

func (m *machine) python(more []string, text string, args ...string) *program {
	m.t.Helper()
	return m.start(more, "python3", append([]string{m.file(pythonCUDA + text)}, args...)...)
}

// bytesOf makes an account of single allocations of kind device, by place.
func bytesOf(places map[string]uint64) account {
	a := account{}
	for place, bytes := range places {
		a.add(place, "device", fakecuda.Count{Objects: 1, Bytes: bytes})
	}
	return a
}

// checkDevices compares the books of a process with the machine's own, by physical GPU.
func (m *machine) checkDevices(what string, p *program, want account) *ledger.Snapshot {
	m.t.Helper()
	s := m.snapshot()
	usage := m.usage(p.pid())
	got := booked(m.t, s, p.pid())
	compareAccounts(m.t, what, got, accountOf(&usage))
	if want != nil && !maps.Equal(got, want) {
		m.t.Errorf("%s: the books have %v, want %v", what, got, want)
	}
	checkLosses(m.t, s)
	return s
}

// Attaching and detaching take seconds: these share a tracer.
func TestDevicesAreThePhysicalOnes(t *testing.T) {
	m := newMachine(t, 4)
	m.trace(nil)
	t.Run("threads with devices of their own", func(t *testing.T) { testDevicesOfThreads(t, m.in(t)) })
	t.Run("CUDA_VISIBLE_DEVICES", func(t *testing.T) { testVisibleDevices(t, m.in(t)) })
	t.Run("set by the program itself", func(t *testing.T) { testOwnEnvironment(t, m.in(t)) })
}

func testDevicesOfThreads(t *testing.T, m *machine) {
	p := m.python([]string{"CUDA_VISIBLE_DEVICES=3,0,2,1"}, `
load()
meet = threading.Barrier(5)
def work(n):
    set_device(n)
    meet.wait()
    kept = [malloc(1000 + n) for _ in range(200)]
    for p in kept[:150]: free(p)
    meet.wait(), meet.wait()
    for i in range(40):
        set_device((n + i) % 4)
        malloc(100 * (n + 1) + i)
        if i % 3 == 0: free(kept.pop()) # of another device than the current one
    meet.wait()
threads = at_once(work, 4)
meet.wait(), meet.wait()
say("own")
meet.wait(), meet.wait()
say("switched")
`)
	p.expect("own")
	want := account{}
	for ordinal, gpu := range []int{3, 0, 2, 1} {
		want.add(fmt.Sprint("GPU ", gpu), "device", fakecuda.Count{Objects: 50, Bytes: 50 * uint64(1000+ordinal)})
	}
	m.checkDevices("threads at once", p, want)
	p.next()
	p.expect("switched")
	m.checkDevices("after switching between the calls", p, nil)
}

// deviceScripts allocate on several devices, or on another one than the current one.
var deviceScripts = map[string][]string{
	"cudaSetDevice": {"cudaMalloc a 1000", "cudaSetDevice 1", "cudaMalloc b 2000", "cudaSetDevice 0", "cudaMallocAsync c 3000"},
	"contexts of the driver": {"cuDevicePrimaryCtxRetain c 1", "cuDevicePrimaryCtxRetain d 0", "cuCtxSetCurrent c", "cuMemAlloc_v2 a 1000",
		"cuCtxPushCurrent_v2 d", "cuMemAlloc_v2 b 2000", "cuMemAllocManaged m 70000", "cuCtxPopCurrent_v2 e", "cuMemAllocAsync f 3000",
		"cuCtxCreate_v2 g 0", "cuMemAlloc_v2 h 4000", "cuCtxPopCurrent_v2 e", "cuMemAlloc_v2 i 5000", "cudaMalloc j 6000"},
	"memory for another device": {"cudaSetDevice 1", "cuMemCreate a 4M 0", "cuMemCreate b 2M 1", "cuMemCreate c 2M host",
		"cudaMemPoolCreate q 0", "cudaMallocFromPoolAsync d 1000 q", "cuMemPoolCreate r 0", "cuMemAllocFromPoolAsync e 2000 r",
		"cudaGraphCreate g", "cudaGraphAddMemAllocNode n g f 0 3000", "cudaMalloc h 4000"},
	"threads without a device": {"cudaSetDevice 1", "cudaMalloc a 1000", "threads 2", "cudaMalloc b 2000", "cuMemAlloc_v2 c 3000", "end"},
}

func testVisibleDevices(t *testing.T, m *machine) {
	fakecuda.OnlyFake(t, "it names GPUs by the fake's UUIDs")
	for visible, want := range map[string][]int{
		"":                           {0, 1, 2, 3},
		"2,0":                        {2, 0},
		"GPU-faa3,GPU-fa22":          {3, 0},
		"GPU-FA4D5E6F,3":             {1, 3},
		"1,0,9,2":                    {1, 0},
		"3,2,GPU-fa":                 {3, 2},
		"CUDA_DEVICE_ORDER=2,1,3":    {2, 1, 3},
		"NVIDIA_VISIBLE_DEVICES=1,3": {0, 1, 2, 3}, // says nothing outside of containers
	} {
		var more []string
		switch name, value, ok := strings.Cut(visible, "="); {
		case name == "CUDA_DEVICE_ORDER":
			more = []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=" + value}
		case ok:
			more = []string{visible}
		case visible != "":
			more = []string{"CUDA_VISIBLE_DEVICES=" + visible}
		}
		for name, script := range deviceScripts {
			what := fmt.Sprintf("%q, %s", visible, name)
			p := m.script("calls_c", more, append(slices.Clone(script), "ready", "wait")...)
			p.ready()
			s := m.checkDevices(what, p, nil)
			x, _ := processOf(t, s, p.pid())
			var uuids []string
			for _, i := range want {
				uuids = append(uuids, s.GPUs[i].UUID)
			}
			if !slices.Equal(x.Devices, uuids) {
				t.Errorf("%s: devices are %q, want %q", what, x.Devices, uuids)
			}
			p.end()
		}
	}
}

// Programs choose their GPUs in themselves, before they load CUDA.
func testOwnEnvironment(t *testing.T, m *machine) {
	for _, before := range []string{"A=b", "CUDA_VISIBLE_DEVICES=0,1"} {
		p := m.python([]string{before}, `
os.environ["CUDA_VISIBLE_DEVICES"] = "3,1"
load()
malloc(1000)
set_device(1)
malloc(2000)
say("ready")
`)
		p.expect("ready")
		m.checkDevices(before, p, bytesOf(map[string]uint64{"GPU 3": 1000, "GPU 1": 2000}))
		p.end()
	}
}

// lateProgram has a thread for each device that it is given, which chooses it and allocates 1000
// bytes, and then 2000, 3000 and 4000 without choosing again; before the size in ASK it asks which
// device it has.
const lateProgram = `
load()
meet = threading.Barrier(len(sys.argv))
def work(n):
    device, got = int(sys.argv[n + 1]), ctypes.c_int()
    set_device(device)
    malloc(1000)
    meet.wait()
    for size in 2000, 3000, 4000:
        meet.wait()
        end = time.monotonic() + 0.3
        while str(size) == os.environ["ASK"] and time.monotonic() < end:
            check(cudart.cudaGetDevice(ctypes.byref(got)))
            time.sleep(0.001)
        if size == 4000: set_device(device)
        malloc(size)
        meet.wait()
at_once(work, len(sys.argv) - 1)
meet.wait()
say("1000")
for size in 2000, 3000, 4000:
    meet.wait(), meet.wait()
    say(size)
`

// A session may end, or write an out-of-memory record, some ms after it is ready.
func TestGPUsOfAProcessAreKnownWhenTracingBegins(t *testing.T) {
	m := newMachine(t, 2)
	var pids []uint32
	for range 20 {
		p := m.script("calls_c", []string{"CUDA_VISIBLE_DEVICES=1"}, "ready", "wait") // not on NVML's list yet
		p.ready()
		pids = append(pids, p.pid())
	}
	var first *ledger.Snapshot
	m.trace(func(c *Config) {
		ready := c.Ready
		c.Ready = func(pids []uint32) {
			first = m.Snapshot()
			ready(pids)
		}
	})
	for _, x := range first.Processes {
		if slices.Contains(pids, x.PID) && !slices.Equal(x.Devices, []string{first.GPUs[1].UUID}) {
			t.Errorf("process %d has the GPUs %q", x.PID, x.Devices)
		}
	}
	if len(first.Processes) <= len(pids) {
		t.Errorf("%d processes", len(first.Processes))
	}
}

// TestLateAttachLearnsDevices: threads that chose their devices before the attach are on those
// that something tells, or on an unknown one; never on device 0 for lack of a better one.
func TestLateAttachLearnsDevices(t *testing.T) {
	m := newMachine(t, 4)
	asks := m.python([]string{"ASK=2000"}, lateProgram, "2", "1")
	later := m.python([]string{"ASK=3000"}, lateProgram, "2", "1")
	silent := m.python([]string{"ASK="}, lateProgram, "2", "1")
	alone := m.python([]string{"ASK="}, lateProgram, "3", "3")
	for _, p := range []*program{asks, later, silent, alone} {
		p.expect("1000")
	}
	m.trace(nil)
	want := map[*program]account{asks: {}, later: {}, silent: {}, alone: {}}
	step := func(p *program, size uint64, places ...string) {
		t.Helper()
		p.next()
		p.expect(fmt.Sprint(size))
		for _, place := range places {
			want[p].add(place, "device", fakecuda.Count{Objects: 1, Bytes: size})
		}
		s := m.snapshot()
		if got := booked(t, s, p.pid()); !maps.Equal(got, want[p]) {
			t.Errorf("process %d after %d bytes: the books have %v, want %v", p.pid(), size, got, want[p])
		}
	}
	m.workDone() // what tells devices is looked at now, for a second
	step(asks, 2000, "GPU 2", "GPU 1")
	time.Sleep(probes.LearnFor + 200*time.Millisecond)
	step(silent, 2000, "unknown", "unknown")
	step(later, 2000, "unknown", "unknown") // and so it is looked at again
	m.workDone()
	delete(want[later], "unknown device") // what came before is told, too
	for _, place := range []string{"GPU 2", "GPU 1"} {
		want[later].add(place, "device", fakecuda.Count{Objects: 1, Bytes: 2000})
	}
	step(later, 3000, "GPU 2", "GPU 1")
	step(asks, 3000, "GPU 2", "GPU 1")
	step(silent, 3000, "unknown", "unknown")
	step(silent, 4000, "GPU 2", "GPU 1") // it has chosen again: what it had before nothing tells
	step(alone, 2000, "GPU 3", "GPU 3")  // NVML lists it on one GPU only
}

// TestASleeperIsToldItsDeviceLater: a thread that sleeps during the attach, and allocates before it
// asks for its device.
func TestASleeperIsToldItsDeviceLater(t *testing.T) {
	m := newMachine(t, 2)
	p := m.python(nil, `
load()
meet = threading.Barrier(3)
def work(n):
    set_device(n)
    malloc(1000)
    meet.wait(), meet.wait()
    for _ in range(72 if n else 2): malloc(1 << 20)
    meet.wait(), meet.wait()
    got = ctypes.c_int()
    for _ in range(500):
        check(cudart.cudaGetDevice(ctypes.byref(got)))
        time.sleep(0.001)
    meet.wait()
at_once(work, 2)
meet.wait()
say("chosen")
meet.wait(), meet.wait()
say("allocated")
meet.wait(), meet.wait()
say("asked")
`)
	p.expect("chosen")
	m.trace(nil)
	time.Sleep(probes.LearnFor + 500*time.Millisecond)
	p.next()
	p.expect("allocated")
	want := account{"GPU 0 device": {Objects: 2, Bytes: 2 << 20}, "GPU 1 device": {Objects: 72, Bytes: 72 << 20}}
	// A reading of NVML between the two threads' allocations shows which is whose.
	if got, unknown := booked(t, m.snapshot(), p.pid()), (account{"unknown device": {Objects: 74, Bytes: 74 << 20}}); !maps.Equal(got, unknown) && !maps.Equal(got, want) {
		t.Errorf("before it asks the books have %v, want %v or %v", got, unknown, want)
	}
	m.workDone() // what tells devices is looked at
	p.next()
	p.expect("asked")
	if got := booked(t, m.snapshot(), p.pid()); !maps.Equal(got, want) {
		t.Errorf("after it asked the books have %v, want %v", got, want)
	}
}

func TestInstancesOfDividedGPUsAreDevices(t *testing.T) {
	fakecuda.OnlyFake(t, "the simulated driver has no MIG")
	m := newMachine(t, 2, "FAKECUDA_MIG=1")
	m.trace(nil)
	first := m.snapshot().GPUs
	if len(first) != 6 || first[1].Parent != first[0].UUID {
		t.Fatalf("2 GPUs with 2 instances each: NVML lists %+v", first)
	}
	for visible, instance := range map[string]int{
		"A=b": 0, "CUDA_VISIBLE_DEVICES=1": 2, "CUDA_VISIBLE_DEVICES=" + first[5].UUID: 3, "CUDA_VISIBLE_DEVICES=" + first[2].UUID[:9]: 1,
		"CUDA_VISIBLE_DEVICES=" + first[4].UUID + "," + first[1].UUID: 2,
	} {
		p := m.script("calls_c", []string{visible}, "cudaMalloc a 1000", "cuMemCreate b 2M 0", "ready", "wait")
		p.ready()
		place := fmt.Sprint("GPU ", instance)
		s := m.checkDevices(visible, p, account{place + " device": {Objects: 1, Bytes: 1000}, place + " vmm": {Objects: 1, Bytes: page}})
		_, index := processOf(t, s, p.pid())
		var balances []ledger.Balance
		for _, b := range s.Balances {
			if b.Process == index {
				balances = append(balances, b)
			}
		}
		if len(balances) != 1 || balances[0].UUID != devicesOf(s)[instance] || balances[0].Live != 1000+page {
			t.Errorf("%s: balances %+v", visible, balances)
		}
		p.end()
	}
}
