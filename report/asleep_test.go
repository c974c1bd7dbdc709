// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// asleepSnapshot: an inference server with 60 GiB of weights asleep, of the line of stack 1, and 2 GiB of a line of stack 3 that
// stayed on the GPU, in a segment of 3 GiB.
func asleepSnapshot() *ledger.Snapshot {
	const gpu, gib = "GPU-1a2b3c4d-0000-0000-0000-000000000000", uint64(1 << 30)
	l := ledger.New(ledger.Options{Begin: second})
	l.Tell(ledger.GPUs{{UUID: gpu, Total: 80 * gib, Used: 4 * gib}})
	l.Tell(ledger.Process{PID: 7, Comm: "vllm", Begin: second, Devices: []string{gpu}})
	l.Tell(ledger.UsageReading{Time: second, Usages: []ledger.Usage{{PID: 7, UUID: gpu, Bytes: 300 * mib}}})
	apply := func(e ledger.Event) {
		e.PID, e.TID, e.Time = 7, 7, max(e.Time, 2*second)
		l.Apply(&e)
	}
	blocks := []ledger.Block{{Address: 1 << 40, Size: 2 * gib}, {Address: 2 << 40, Size: 60 * gib}}
	for i, size := range []uint64{3 * gib, 61 * gib} {
		handle, at := uint64(i+1), uint64(i+1)<<40
		apply(ledger.Event{Op: ledger.Alloc, Kind: ledger.VMM, Space: ledger.Physical, Address: handle, Size: size, Stack: 4, API: "cuMemCreate"})
		apply(ledger.Event{Op: ledger.Map, Address: at, Size: size, Handle: handle})
	}
	apply(ledger.Event{Op: ledger.Allocator, Handle: 64 * gib})
	for i, b := range blocks {
		apply(ledger.Event{Op: ledger.Alloc, Kind: ledger.Tensor, Space: ledger.Blocks, Address: b.Address, Size: b.Size, Stack: []uint64{3, 1}[i], API: "torch"})
	}
	apply(ledger.Event{Op: ledger.Unmap, Address: 2 << 40, Size: 61 * gib, Time: 3 * second})
	apply(ledger.Event{Op: ledger.Free, Space: ledger.Physical, Address: 2, Time: 3 * second})
	totals := ledger.TensorTotals{PID: 7, Reported: 3 * second, Allocated: 62 * gib, Reserved: 64 * gib, Classes: make([]ledger.ClassTotals, ledger.SizeClasses)}
	for _, b := range blocks {
		totals.Classes[ledger.SizeClass(b.Size)] = ledger.ClassTotals{Allocs: 1, AllocBytes: b.Size}
	}
	l.Tell(ledger.TensorReading{Time: 4 * second, Totals: []ledger.TensorTotals{totals}})
	l.Tell(ledger.BlockList{PID: 7, Blocks: blocks})
	l.Tell(ledger.UsageReading{Time: 4 * second, Usages: []ledger.Usage{{PID: 7, UUID: gpu, Bytes: 3372 * mib}}})
	return l.Snapshot(5*second, time.Unix(1_790_000_000, 0))
}

func TestTensorsAsleepAreInTheSumOfNoGPU(t *testing.T) {
	s := asleepSnapshot()
	sum := map[string]int64{}
	for _, h := range Holdings(s) {
		sum[h.Plane] += h.Live
		if h.Apart() != (h.Plane == PlaneAsleep) {
			t.Errorf("%+v: apart %v", h, h.Apart())
		}
	}
	if sum[PlaneAsleep] != 60<<30 || sum[PlaneTensor] != 2<<30 || sum[PlaneCache] != 1<<30 || sum[PlaneBefore] != int64(300*mib) || sum[PlaneUnexplained] != 0 || sum[PlaneDriver] != 0 {
		t.Errorf("planes %v, want 60 GiB asleep beside NVML's 2 GiB of tensors, 1 GiB of cache and 300 MiB from before", sum)
	}
	p := parsed(t, s, torchStacks())
	var inuse, host, alloc uint64
	for _, x := range p.Sample {
		inuse, host, alloc = inuse+uint64(x.Value[3]), host+uint64(x.Value[5]), alloc+uint64(x.Value[1])
	}
	if inuse != s.Balances[0].Usage || host != 0 || alloc != 62<<30 {
		t.Errorf("the profile has %d bytes in use, %d of the host, %d allocated, want NVML's %d, none, and both tensors", inuse, host, alloc, s.Balances[0].Usage)
	}
}

func TestReportsSayWhatSleepsAndWhatStayed(t *testing.T) {
	s, st := asleepSnapshot(), torchStacks()
	var leaks, summary, table bytes.Buffer
	if err := WriteLeaks(&leaks, s, st, Options{}, Screen{Width: 100}); err != nil {
		t.Fatal(err)
	}
	if err := WriteSummary(&summary, s, st, Options{}, Screen{Width: 100}); err != nil {
		t.Fatal(err)
	}
	if err := WriteTable(&table, s, st, Options{}, Screen{Width: 100}); err != nil {
		t.Fatal(err)
	}
	const said = "60.0 GiB of tensors are asleep: PyTorch counts them, but their memory was unmapped\n"
	for _, c := range []struct {
		where string
		text  *bytes.Buffer
		want  string
	}{
		{"leaks", &leaks, "\nLive GPU memory: 2.00 GiB in 1 allocation from 1 site\nnot counted, as PyTorch keeps it for later tensors: 1.00 GiB of cache\n\n1.  2.00 GiB  /home/ada/llm/optim.py:31 Adam.init_state\n"},
		{"leaks", &leaks, "\n" + said + "\n-   60.0 GiB  /home/ada/llm/model.py:88 Block.forward\n    of 60.0 GiB, vllm [7], tensors on cuda:0\n"},
		{"summary", &summary, "\nLargest sites of what stayed on the GPU\n\n1.  2.00 GiB  /home/ada/llm/optim.py:31 Adam.init_state\n"},
		{"summary", &summary, said},
		{"summary", &summary, "; 60.0 GiB of tensors are"},
		{"table", &table, " 2.00 GiB          1  2.00 GiB  tensor  cuda:0  /home/ada/llm/optim.py:31 Adam.init_state\n"},
		{"table", &table, " 60.0 GiB          0       0 B  asleep  cuda:0  /home/ada/llm/model.py:88 Block.forward\n"},
	} {
		if !strings.Contains(c.text.String(), c.want) {
			t.Errorf("%s: no %q in\n%s", c.where, c.want, c.text)
		}
	}
	r := newLeaksReport(s, st, Options{})
	if r.LiveBytes != 2<<30 || r.AsleepBytes != 60<<30 || r.Tensors[0].AsleepBytes != 60<<30 || len(r.Sites) != 1 || r.Asleep[0].AsleepBytes != 60<<30 {
		t.Errorf("JSON: %d bytes live, %d asleep, tensors %+v", r.LiveBytes, r.AsleepBytes, r.Tensors)
	}
}
