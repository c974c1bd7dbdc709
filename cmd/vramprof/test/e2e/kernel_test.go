// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

// scripts/test-kernels.sh runs these tests on each kernel. Loading the programs takes seconds in a
// simulated processor, so one session covers what other tests do in several.

// partOf returns a program's part of a profile.
func partOf(p *profile.Profile, comm string) *profile.Profile {
	part := p.Copy()
	part.Sample = nil
	for _, s := range p.Sample {
		if label(s, "comm") == comm {
			part.Sample = append(part.Sample, s)
		}
	}
	return part
}

// checkNothingLost checks the comments of a profile for losses.
func checkNothingLost(t *testing.T, p *profile.Profile) {
	t.Helper()
	for _, c := range p.Comments {
		for _, word := range []string{"lost", "without stack", "truncated", "torn", "unmatched", "before the attach"} {
			if strings.Contains(c, word) {
				t.Errorf("comment %q", c)
			}
		}
	}
	if t.Failed() {
		t.Logf("comments:\n%s", strings.Join(p.Comments, "\n"))
	}
}

func TestRunningCAndPythonAreTracedTogether(t *testing.T) {
	dir := setupAlone(t) // another test's tracer of all processes would probe these too
	env := append(dir.Env(t, 1, 8<<30), "LD_LIBRARY_PATH="+privateLibraries(t, dir))
	c := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", "free0\nready\nwait\n"+everyOperation+"print done\nwait\n"))
	python := startTarget(t, env, "/usr/bin/python3", dir.Program("leak.py"), "--stdin", "--threads", "1")
	c.expectReady()
	python.expectReady()
	s := startRecord(t, env, "-p", fmt.Sprint(c.pid()), "-p", fmt.Sprint(python.pid())).ready()
	c.next() // one after the other: where threads preempt each other, some stacks are torn, and counted
	c.expect("done")
	python.next()
	want := parseCalls(t, python.until("done"))
	p := s.stop().profile()
	if !regexp.MustCompile(`kernel memory: maps take \d+(\.\d+)? MiB, and unwind tables \d+(\.\d+)? [KM]iB more`).MatchString(s.stderr.String()) {
		t.Error("the session did not report its kernel memory")
	}
	for _, target := range []*target{c, python} {
		eventually(t, 90*time.Second, "the probes are gone from "+filepath.Base(target.Path), func() bool {
			return probed(t, target.pid(), "libcuda.so.1", "libcudart.so.12") == 0
		})
		target.end()
	}
	booksOf(t, partOf(p, "alloc_c")).compare(t, everyOperationBooks("cuda:0"))
	ofPython := partOf(p, "python3")
	pythonBooks(ofPython, "leak.py").compare(t, want)
	checkPythonStacks(t, ofPython)
	checkNothingLost(t, p)
}

func TestRecordedCommandOfCAndPythonIsTracedFromItsFirstCall(t *testing.T) {
	dir := setupAlone(t) // the command lives for a second after its calls: see TestRecordedPythonCommandLosesNoStack
	env := dir.Env(t, 1, 8<<30)
	out := writeFile(t, "calls", "")
	p := record(t, env, "sh", "-c", `"$0" "$1"; (echo; sleep 1) | /usr/bin/python3 "$2" --stdin --threads 1 >"$3"`,
		dir.Program("alloc_c"), writeFile(t, "script", everyOperation), dir.Program("leak.py"), out)
	booksOf(t, partOf(p, "alloc_c")).compare(t, everyOperationBooks("cuda:0"))
	ofPython := partOf(p, "python3")
	pythonBooks(ofPython, "leak.py").compare(t, parseCalls(t, callLines(t, out)))
	checkPythonStacks(t, ofPython)
	checkNothingLost(t, p)
}

// Threads that share a processor preempt each other inside the BPF programs, if the kernel allows
// it. Every allocation must be booked, and with its own stack unless the loss is counted. Each path
// has the same number of calls, so a stack that was attributed to another thread's call shows.
func TestPreemptedThreadsGetTheirOwnStacks(t *testing.T) {
	const threads, paths, perThread = 4, 40, 20000 // whole chunks of 1000, each of which takes every path
	dir := setup(t)
	p := record(t, dir.Env(t, 1, 8<<30), dir.Program("bench_c"), "cuda", "12", fmt.Sprint(perThread),
		"--threads", fmt.Sprint(threads), "--paths", fmt.Sprint(paths))
	got := map[string]int64{}
	var all, live, doubted int64
	for _, s := range p.Sample {
		stack := strings.Join(rootFirst(s), " ")
		all += s.Value[0]
		live += s.Value[2]
		if strings.Contains(stack, "[") { // marks are in brackets
			doubted += s.Value[0]
		} else {
			got[stack] += s.Value[0]
		}
	}
	if all != threads*perThread || live != 0 {
		t.Errorf("%d allocations, %d live, want %d and 0", all, live, threads*perThread)
	}
	missing := int64(0)
	for stack, n := range got {
		want := int64(perThread / paths) // of the first thread, which begins in main
		if !strings.Contains(stack, " main ") {
			want *= threads - 1
		}
		if n > want {
			t.Errorf("%d calls, want at most %d: %s", n, want, stack)
		}
		missing += want - n
	}
	if len(got) != 2*paths || missing != doubted {
		t.Errorf("%d stacks, want %d; %d calls missing, %d without a whole stack", len(got), 2*paths, missing, doubted)
	}
	t.Logf("%d of %d calls without a whole stack", doubted, all)
}
