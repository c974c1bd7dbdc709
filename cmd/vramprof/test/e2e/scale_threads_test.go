// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"
)

func TestScaleTenThousandThreadsHaveTheirStacks(t *testing.T) {
	onlyLong(t)
	const threads = 10_000
	dir := setup(t)
	need(t, "/proc/sys/kernel/pid_max", 3*threads)
	need(t, "/proc/sys/kernel/threads-max", 3*threads)
	env := dir.Env(t, 1, 64<<30)
	target := startTarget(t, env, dir.Program("storm_c"), "threads", fmt.Sprint(threads))
	target.expectReady()
	began := time.Now()
	l := startLeaks(t, env, "-p", fmt.Sprint(target.pid())).ready()
	t.Logf("attached in %v", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	target.next()
	target.expect("allocated")
	t.Logf("%d calls in %v", 3*threads, time.Since(began).Round(time.Millisecond))
	l.checkVitals("with 10,000 threads")
	target.next()
	target.expect("done")
	target.end()
	r := l.wait().leaks()
	checkNoLosses(t, r)
	if got, bytes, live, _ := sums(r); got != 2*threads || bytes != threads*1024 || live != 0 {
		t.Errorf("%d allocations of %d bytes, %d live; want %d of %d, none; %s", got, bytes, live, 2*threads, threads*1024, told(r))
	}
	for _, x := range r.Sites {
		if len(x.Stack) < 3 || x.Stack[0].Function != "cudaMalloc" || x.Stack[1].Function != "allocate" || x.Stack[2].Function != "one_of_many" {
			t.Errorf("%d allocations have the stack %+v", x.AllocatedCount, x.Stack)
		}
	}
}

func TestScaleShortThreadsLeaveNothing(t *testing.T) {
	onlyLong(t)
	const threads = 40_000 // more than fit into the kernel half at once
	dir := setup(t)
	env := dir.Env(t, 1, 64<<30)
	target := startTarget(t, env, dir.Program("storm_c"), "churn", fmt.Sprint(threads), "50")
	target.expectReady()
	l := startLeaks(t, env, "-p", fmt.Sprint(target.pid())).ready()
	before := l.checkVitals("before")
	began := time.Now()
	target.next()
	target.expect("done")
	t.Logf("%d threads in %v", threads, time.Since(began).Round(time.Millisecond))
	after := l.checkVitals("after")
	target.end()
	r := l.wait().leaks()
	checkNoLosses(t, r)
	if got, bytes, live, _ := sums(r); got != 2*threads || bytes != 3000*threads || live != threads {
		t.Errorf("%d allocations of %d bytes, %d live; want %d of %d, %d; %s", got, bytes, live, 2*threads, 3000*threads, threads, told(r))
	}
	if after.files > before.files+8 || after.threads > before.threads+16 {
		t.Errorf("vramprof had %v, has %v", before, after)
	}
}
