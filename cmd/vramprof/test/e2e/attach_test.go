// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/report/json"
)

const (
	mib  = 1 << 20
	page = 2 * mib // granularity of NVML's figures
)

// balance returns the only balance of a report and checks that it adds up.
func balance(t *testing.T, r *json.LeaksReport) json.BalanceReport {
	t.Helper()
	if len(r.Balances) != 1 {
		t.Fatalf("balances %+v, want one", r.Balances)
	}
	b := r.Balances[0]
	if int64(b.UsageBytes) != int64(b.BaselineBytes+b.LiveBytes+b.RoundingBytes)+b.GapBytes {
		t.Errorf("%+v does not add up", b)
	}
	return b
}

func TestBaselineAndTracedMemoryExplainUsage(t *testing.T) {
	fakecuda.OnlyFake(t, "the simulated driver has no device nodes, which show the GPU of a running process")
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	script := "malloc a 3000000\nmalloc b 100\nready\nwait\n" +
		"repeat 20\nmalloc c 5000000\nend\nmanaged d 1\nmalloc e 700\nfree c\nprint done\nwait\n"
	program := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", script))
	program.expectReady()
	l := startLeaks(t, env, "-p", fmt.Sprint(program.pid())).ready()
	program.next()
	program.expect("done")
	r := l.stop().leaks()
	program.end()

	checkNoLosses(t, r)
	b := balance(t, r)
	const contextAndEarlier = 300*mib + 2*page + page // context, the large block a, the page of the small block b
	if b.BaselineBytes != contextAndEarlier {
		t.Errorf("baseline %d, want %d", b.BaselineBytes, contextAndEarlier)
	}
	if want := uint64(19*5000000 + 700); b.LiveBytes != want {
		t.Errorf("traced %d live, want %d without managed memory", b.LiveBytes, want)
	}
	const rounding = 19*(3*page-5000000) - 700 // e lies in the page of b, which the driver had taken before
	if b.GapBytes != 0 || b.RoundingBytes != rounding {
		t.Errorf("gap %d, rounding %d, want 0 and %d", b.GapBytes, b.RoundingBytes, rounding)
	}
	if b.Device != "cuda:0" || b.GPUUUID != r.GPUs[0].UUID {
		t.Errorf("%+v on GPUs %+v", b, r.GPUs)
	}
}

func TestFreesOfMemoryBeforeTheAttachAreCounted(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	script := "malloc a 4194304\nmalloc b 4194304\npinned p 100\ndriver_malloc q 4194304\nready\nwait\n" +
		"free a\nfree b\nfreehost p\nmalloc c 2097152\nbadfree\nprint done\nwait\n"
	program := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", script))
	program.expectReady()
	l := startLeaks(t, env, "-p", fmt.Sprint(program.pid())).ready()
	program.next()
	program.expect("done")
	r := l.stop().leaks()
	program.end()

	checkWhole(t, r)
	if r.Losses.UnmatchedFrees != 3 {
		t.Errorf("%d unmatched frees, want 3 (the failed free does not count)", r.Losses.UnmatchedFrees)
	}
	if r.LiveBytes != 2097152 || r.LiveCount != 1 {
		t.Errorf("live %d bytes in %d, want the block c", r.LiveBytes, r.LiveCount)
	}
	if b := balance(t, r); b.GapBytes != -2*4194304 {
		t.Errorf("gap %d, want the size of the blocks a and b, negative", b.GapBytes)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "3 frees were of memory allocated before the attach") {
		t.Errorf("notes %q do not mention the unmatched frees", notes)
	}
}

// failedFree frees a live pinned allocation as device memory, which fails.
const failedFree = `
import ctypes, sys
cudart = ctypes.CDLL("libcudart.so.12")
def allocate():
    p = ctypes.c_void_p()
    assert cudart.cudaHostAlloc(ctypes.byref(p), ctypes.c_size_t(4096), 0) == 0
    return p
p = allocate()
assert cudart.cudaFree(p) == 1
q = allocate()
assert cudart.cudaFreeHost(q) == 0
assert cudart.cudaFree(p) == 1
`

func TestFailedFreeKeepsTheAllocation(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	r := leaks(t, env, "/usr/bin/python3", writeFile(t, "free.py", failedFree))
	checkNoLosses(t, r)
	if r.LiveCount != 1 || r.LiveBytes != 4096 || r.Processes[0].Totals[0].AllocatedCount != 2 {
		t.Errorf("live %d bytes in %d, want the allocation whose free failed", r.LiveBytes, r.LiveCount)
	}
}

func TestProcessOnTheSecondGPUIsBookedThere(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 2, 8<<30)
	own := append(env[:len(env):len(env)], "CUDA_VISIBLE_DEVICES=1")
	program := startTarget(t, own, dir.Program("alloc_c"), writeFile(t, "script", "free0\nready\nwait\nmalloc a 4194304\nprint done\nwait\n"))
	program.expectReady()
	s := startRecord(t, env, "-p", fmt.Sprint(program.pid())).ready()
	l := startLeaks(t, env, "-p", fmt.Sprint(program.pid())).ready()
	program.next()
	program.expect("done")
	p, r := s.stop().profile(), l.stop().leaks()
	program.end()

	if len(r.GPUs) != 2 || len(p.Sample) != 1 {
		t.Fatalf("GPUs %+v, %d samples, want 2 and 1", r.GPUs, len(p.Sample))
	}
	second := r.GPUs[1].UUID
	if x := p.Sample[0]; label(x, "device") != "cuda:0" || label(x, "gpu_uuid") != second {
		t.Errorf("labels %v, want cuda:0 of the process, which is %s", x.Label, second)
	}
	if b := balance(t, r); b.GPUUUID != second || b.LiveBytes != 4194304 || b.GapBytes != 0 {
		t.Errorf("balance %+v, want all of 4194304 bytes on %s", b, second)
	}
}
