// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// distance is the number of objects in which two accounts differ.
func distance(a, b account) (objects uint64) {
	for _, key := range slices.Compact(slices.Sorted(maps.Keys(merged(a, b)))) {
		x, y := a[key].Objects, b[key].Objects
		objects += max(x, y) - min(x, y)
	}
	return objects
}

func merged(a, b account) account {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// startWithPID starts a program that gets a pid again, if the kernel lets us choose.
func (m *machine) startWithPID(pid uint32, start func() *program) *program {
	m.t.Helper()
	for range 20 {
		if os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, pid-1), 0) != nil {
			break
		}
		p := start()
		if p.pid() == pid {
			return p
		}
		p.Process.Kill()
		p.Wait()
	}
	m.t.Log("the pid was not to be had again")
	return start()
}

// checkEnded wants the books of a process that was killed to be those of the
// machine, but for the calls that its threads were in: each may have changed most objects.
func (m *machine) checkEnded(what string, s *ledger.Snapshot, pid uint32, most uint64) {
	m.t.Helper()
	const threads = 8
	if p, _ := processOf(m.t, s, pid); p.End == 0 {
		m.t.Errorf("%s: process %d has not ended", what, pid)
	}
	usage := m.usage(pid)
	if !usage.Ended {
		m.t.Fatalf("%s: process %d runs", what, pid)
	}
	got, want := booked(m.t, s, pid), accountOf(&usage)
	for key, c := range got {
		if c.Objects > 1<<20 || c.Bytes > 1<<40 {
			m.t.Errorf("%s: %s has %d of %d bytes", what, key, c.Objects, c.Bytes)
		}
	}
	if d := distance(got, want); d > threads*most {
		m.t.Errorf("%s: the books differ by %d objects from the machine's, want at most %d\n%v\n%v", what, d, threads*most, got, want)
	}
}

// startTogether starts processes with random calls, the first one with that pid unless it is 0.
func (m *machine) startTogether(n int, pid uint32, arguments []string, random *rand.Rand) (list []*program) {
	m.t.Helper()
	start := func() *program {
		return m.start(nil, m.program("calls_c"), append([]string{"--random", fmt.Sprint(random.IntN(1 << 30)), "100000000"}, arguments...)...)
	}
	for i := range n {
		if i == 0 && pid != 0 {
			list = append(list, m.startWithPID(pid, start))
		} else {
			list = append(list, start())
		}
	}
	return list
}

// TestProcessesKilledInTheMiddleOfCallsLeaveTheBooksBalanced kills processes of eight threads at
// random moments.
func TestProcessesKilledInTheMiddleOfCallsLeaveTheBooksBalanced(t *testing.T) {
	const rounds, together = 12, 5
	m := newMachine(t, 2)
	m.trace(nil)
	random := rand.New(rand.NewPCG(1, 2))
	worst := uint64(0)
	var last uint32
	for round := range rounds {
		// A context's end is one call and frees as much as this:
		most, more := uint64(1), []string{"--no-contexts"}
		if round%2 == 1 {
			most, more = 10, []string{"--free"}
		}
		list := m.startTogether(together, last, append([]string{"--threads", "8", "--gpus", "2", "--stops", "1"}, more...), random)
		for _, p := range list {
			p.expect("random stop 0")
		}
		s := m.snapshot()
		for i, p := range list {
			usage := m.usage(p.pid())
			compareAccounts(t, fmt.Sprintf("round %d, process %d begins", round, i), booked(t, s, p.pid()), accountOf(&usage))
		}
		for _, p := range list {
			p.next()
		}
		for _, i := range random.Perm(together) {
			time.Sleep(time.Duration(5+random.IntN(45)) * time.Millisecond / together * 2)
			list[i].Process.Kill()
		}
		for _, p := range list {
			p.Wait()
		}
		s = m.snapshot()
		for i, p := range list {
			usage := m.usage(p.pid())
			if most == 1 {
				worst = max(worst, distance(booked(t, s, p.pid()), accountOf(&usage)))
			}
			m.checkEnded(fmt.Sprintf("round %d, process %d", round, i), s, p.pid(), most)
		}
		// A free of nothing whose failure was still to come counts as unmatched.
		if x := s.Stats; x.Lost != 0 || x.UnmatchedFrees > uint64(8*together*(round+1)) {
			t.Fatalf("lost %d, unmatched frees %d", x.Lost, x.UnmatchedFrees)
		}
		last = list[0].pid()
	}
	t.Logf("%d processes were killed in the middle of up to 8 calls; the books differed by up to %d objects from the machine's", rounds*together, worst)
}

// Attaching and detaching take seconds: these share a tracer.
func TestProcessesAndThreadsThatEndOrFork(t *testing.T) {
	fakecuda.OnlyFake(t, "NVIDIA's driver cannot be used in a forked child")
	m := newMachine(t, 1)
	m.trace(nil)
	t.Run("exec leaves the memory behind", func(t *testing.T) { testExec(t, m.in(t)) })
	t.Run("a thread that ends in a call allocates nothing", func(t *testing.T) { testDyingThreads(t, m.in(t)) })
	t.Run("a forked child holds nothing", func(t *testing.T) { testFork(t, m.in(t)) })
}

func testExec(t *testing.T, m *machine) {
	second := m.file("malloc b 3000\nprint again\nwait\n")
	for what, before := range map[string][]string{
		"one thread": {"malloc a 1000", "pinned p 500", "print ready", "wait", "exec " + second},
		"in the middle of the calls of eight threads": {"malloc a 1000", "pinned p 500", "print ready", "wait",
			"threads 8", "sleep 100", "repeat 300", "malloc c 70000", "free c", "end", "exec " + second, "end"},
	} {
		p := m.script("alloc_c", nil, before...)
		p.expect("ready")
		m.eventsRead()
		m.workDone() // the process is followed: else its exec is nobody's
		p.next()
		p.expect("again")
		s := m.snapshot()
		usage := m.usage(p.pid())
		compareAccounts(t, what+": after it", booked(t, s, p.pid()), accountOf(&usage))
		if got, want := booked(t, s, p.pid()), (account{"GPU 0 device": {Objects: 1, Bytes: 3000}}); !maps.Equal(got, want) {
			t.Errorf("%s: after it the books are %v, want %v", what, got, want)
		}
		var old []ledger.Process
		for _, x := range s.Processes {
			if x.PID == p.pid() && x.End != 0 {
				old = append(old, x)
			}
		}
		if len(old) != 1 || len(s.Processes) < 2 {
			t.Fatalf("%s: %d processes ended with this pid, want 1", what, len(old))
		}
		for _, x := range old[0].Totals {
			most := uint64(0) // free at the entry of a call, and a call that has not returned
			if x.Kind == ledger.Device {
				most = 8
			}
			if x.LiveObjects < 1 || x.LiveObjects > 1+most {
				t.Errorf("%s: before it %d of kind %s were live", what, x.LiveObjects, kindWords[x.Kind])
			}
		}
		checkLosses(t, s)
		p.end()
	}
}

func testDyingThreads(t *testing.T, m *machine) {
	p := m.start([]string{"FAKECUDA_LATENCY_US=300000"}, m.program("dying_c"), "20")
	p.ready()
	s := m.snapshot()
	got := booked(t, s, p.pid())
	usage := m.usage(p.pid())
	compareAccounts(t, "20 threads", got, accountOf(&usage))
	if want := (account{"GPU 0 device": {Objects: 1, Bytes: 3000}, "GPU 0 managed": {Objects: 1, Bytes: 3000}}); !maps.Equal(got, want) {
		t.Errorf("the books are %v, want %v", got, want)
	}
	if got, want := describeProcess(s, p.pid(), ""), []string{
		"cuda:0 device cudaMalloc live 1/3000 of 1/3000",
		"cuda:0 managed cudaMallocManaged live 1/3000 of 1/3000", // not within the call that the thread with this id did not end
	}; !slices.Equal(got, want) {
		t.Errorf("the books are %q, want %q", got, want)
	}
	checkLosses(t, s)
}

const forks = `
import ctypes, os, sys
cudart = ctypes.CDLL("libcudart.so.12")
def malloc(size):
    p = ctypes.c_void_p()
    return cudart.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size)), p
def say(text):
    print(text, flush=True)
    sys.stdin.readline()
kept = [malloc(1000 * i)[1] for i in range(1, 5)]
child = os.fork()
if child == 0:
    assert malloc(7000)[0] != 0, "CUDA works in a forked child"
    cudart.cudaFree(kept[0])
    os.read(int(sys.argv[1]), 1)
    os._exit(0)
say("child %d" % child)
os.write(int(sys.argv[2]), b"x")
os.waitpid(child, 0)
say("alone")
assert cudart.cudaFree(kept[1]) == 0 and malloc(500)[0] == 0
say("done")
`

func testFork(t *testing.T, m *machine) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	p := m.startFiles([]*os.File{read, write}, nil, "python3", m.file(forks), "3", "4")
	var child uint32
	if _, err := fmt.Fscanf(p.out, "child %d\n", &child); err != nil {
		t.Fatal(err)
	}
	check := func(when string, want fakecuda.Count) {
		t.Helper()
		s := m.snapshot()
		usage := m.usage(p.pid())
		compareAccounts(t, when, booked(t, s, p.pid()), accountOf(&usage))
		if got := booked(t, s, p.pid()); !maps.Equal(got, account{"GPU 0 device": want}) {
			t.Errorf("%s: the books of the parent are %v, want %v", when, got, want)
		}
		if x, _ := processOf(t, s, p.pid()); x.End != 0 {
			t.Errorf("%s: the parent has ended", when)
		}
		for _, x := range s.Processes {
			if x.PID == child && len(booked(t, s, child)) != 0 {
				t.Errorf("%s: the child has %v", when, booked(t, s, child))
			}
		}
	}
	check("with a child", fakecuda.Count{Objects: 4, Bytes: 10000})
	p.next()
	p.expect("alone")
	check("after the child's end", fakecuda.Count{Objects: 4, Bytes: 10000})
	p.next()
	p.expect("done")
	check("when the parent went on", fakecuda.Count{Objects: 4, Bytes: 8500})
	p.end()
}
