// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	"github.com/google/pprof/profile"
)

func TestConcurrentTracersAreExact(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	const half = "repeat 1000\nmalloc a 10\nfree a\nmalloc b 1\nend\n"
	target := startTarget(t, env, dir.Program("alloc_c"),
		writeFile(t, "script", "free0\nready\nwait\n"+half+"print half\nwait\n"+half+"print done\nwait\n"))
	target.expectReady()
	pid := fmt.Sprint(target.pid())
	first := startRecord(t, env, "-p", pid).ready()
	both := startLeaks(t, env, "-p", pid).ready()
	target.next()
	target.expect("half")
	p := first.stop().profile()
	second := startRecord(t, env, "-p", pid).ready()
	target.next()
	target.expect("done")
	q, r := second.stop().profile(), both.stop().leaks()
	target.end()

	want := books{key("cudaMalloc", "device", "cuda:0", "main run_script", "malloc"): {2000, 11000, 1000, 1000}}
	booksOf(t, p).compare(t, want)
	booksOf(t, q).compare(t, want)
	checkNoLosses(t, r)
	if x := r.Processes[0].Totals[0]; x.AllocatedCount != 4000 || x.LiveCount != 2000 || x.LiveBytes != 2000 {
		t.Errorf("totals %+v of the tracer that ran all the time, want 4000 allocations, 2000 live", x)
	}
}

func TestExecStartsANewProcess(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	second := writeFile(t, "second", "free0\nready\nwait\nmanaged b 500\nprint done\nwait\n")
	target := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", "free0\nready\nwait\nmalloc a 1000\nexec "+second+"\n"))
	target.expectReady()
	s := startRecord(t, env, "-p", fmt.Sprint(target.pid())).ready()
	l := startLeaks(t, env, "-p", fmt.Sprint(target.pid())).ready()
	target.next()
	target.expectReady()
	s.afterASecond()
	l.after(0)
	target.next()
	target.expect("done")
	p, r := s.stop().profile(), l.stop().leaks()
	target.end()
	booksOf(t, p).compare(t, books{
		key("cudaMalloc", "device", "cuda:0", "main", "malloc"):          {1, 1000, 1, 1000},
		key("cudaMallocManaged", "managed", "cuda:0", "main", "managed"): {1, 500, 1, 500},
	})
	checkNoLosses(t, r)
	if len(r.Processes) != 2 || r.Processes[0].PID != r.Processes[1].PID || !r.Processes[0].Ended || r.Processes[1].Ended {
		t.Fatalf("processes %+v, want two with one pid, the first one ended", r.Processes)
	}
	if held, holds := r.Processes[0].Totals[0].LiveBytes, r.Processes[1].Totals[0].LiveBytes; held != 1000 || holds != 500 {
		t.Errorf("the first process held %d bytes, the second holds %d, want 1000 and 500", held, holds)
	}
}

// forks allocates, forks a child that does nothing, runs its arguments, and allocates again.
const forks = `
import ctypes, os, subprocess, sys
cudart = ctypes.CDLL("libcudart.so.12")
def allocate(size):
    p = ctypes.c_void_p()
    assert cudart.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size)) == 0
assert cudart.cudaFree(None) == 0
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
allocate(100)
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
allocate(200)
print("done", flush=True)
sys.stdin.readline()
`

// ofComm returns the sums of one program's samples.
func ofComm(p *profile.Profile, comm string) (sum values) {
	for _, s := range p.Sample {
		if label(s, "comm") == comm {
			for i := range sum {
				sum[i] += s.Value[i]
			}
		}
	}
	return sum
}

func TestOnlyChildrenOfACommandAreTraced(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	script := writeFile(t, "forks.py", forks)
	child := []string{dir.Program("alloc_c"), writeFile(t, "script", "malloc a 50\nmalloc b 60\nfree b\n")}

	target := startTarget(t, env, "/usr/bin/python3", append([]string{script}, child...)...)
	target.expectReady()
	s := startRecord(t, env, "-p", fmt.Sprint(target.pid())).ready()
	target.next()
	target.expect("done")
	p := s.stop().profile()
	target.end()
	checkPythonStacks(t, p)
	if got, want := ofComm(p, "python3"), (values{2, 300, 2, 300}); got != want || ofComm(p, "alloc_c") != (values{}) {
		t.Errorf("attached: %v, want %v and nothing of the child: %v", got, want, p)
	}

	p = record(t, env, append([]string{"/usr/bin/python3", script}, child...)...)
	if got, want := ofComm(p, "python3"), (values{2, 300, 2, 300}); got != want {
		t.Errorf("started: %v, want %v", got, want)
	}
	if got, want := ofComm(p, "alloc_c"), (values{2, 110, 1, 50}); got != want {
		t.Errorf("child of the command: %v, want %v", got, want)
	}
}

// The kernel's table has space for 32,768 threads.
func TestShortThreadsLoseNothing(t *testing.T) {
	onlyLong(t)
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	r := leaks(t, env, dir.Program("alloc_c"), writeFile(t, "script", "repeat 5000\nthreads 8\nmalloc a 10\nfree a\nend\nend\nmalloc b 7\n"))
	checkNoLosses(t, r)
	if len(r.Processes) != 1 || len(r.Processes[0].Totals) != 1 {
		t.Fatalf("processes %+v, want one", r.Processes)
	}
	if x := r.Processes[0].Totals[0]; x.AllocatedCount != 40001 || x.LiveCount != 1 || x.LiveBytes != 7 {
		t.Errorf("totals %+v, want 40001 allocations and the last one live", x)
	}
}
