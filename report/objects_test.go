// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// objectsSnapshot: a process whose graphs grow, one with several modules in its baseline, and four that only have contexts.
func objectsSnapshot() *ledger.Snapshot {
	const gpu = "GPU-1a2b3c4d-0000-0000-0000-000000000000"
	begin := 1000 * second
	l := ledger.New(ledger.Options{Begin: begin, Host: "gpu-box-3"})
	l.Tell(ledger.GPUs{{UUID: gpu, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * mib, Used: 4000 * mib}})
	process := func(pid uint32, comm string, at uint64) {
		l.Tell(ledger.Process{PID: pid, Comm: comm, Begin: begin + at, Devices: []string{gpu}})
	}
	event := func(pid uint32, e ledger.Event) {
		e.PID, e.TID = pid, pid
		l.Apply(&e)
	}
	process(100, "train", 0)
	process(200, "server", second)
	process(300, "loader", 0)
	for pid := range uint32(3) {
		process(301+pid, "loader", second)
		event(301+pid, ledger.Event{Op: ledger.ContextRetain, Context: 0xc0, Time: begin + 2*second, Stack: 1, API: "cudaFree"})
	}
	usage := func(at uint64, train, server uint64) {
		l.Tell(ledger.UsageReading{Time: begin + at, Usages: []ledger.Usage{
			{PID: 100, UUID: gpu, Bytes: train * mib}, {PID: 200, UUID: gpu, Bytes: server * mib}, {PID: 300, UUID: gpu, Bytes: 700 * mib},
			{PID: 301, UUID: gpu, Bytes: 500 * mib}, {PID: 302, UUID: gpu, Bytes: 500 * mib}, {PID: 303, UUID: gpu, Bytes: 512 * mib},
		}})

	}
	usage(0, 400, 0)
	event(200, ledger.Event{Op: ledger.ContextRetain, Context: 0xc0, Time: begin + 2*second, Stack: 2, API: "cuDevicePrimaryCtxRetain"})
	for i := range uint64(5) {
		event(200, ledger.Event{Op: ledger.ObjectCreate, Kind: ledger.Module, Address: 0x10 + i, Size: mib, Time: begin + 2*second, Stack: 2, API: "cuModuleLoadData"})
	}
	event(200, ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Address: 0xa0, Size: 100 * mib, Time: begin + 3*second, Stack: 2, API: "cuMemAlloc_v2"})
	usage(4*second, 400, 700)
	for i := range uint64(12) {
		event(100, ledger.Event{Op: ledger.ObjectCreate, Kind: ledger.GraphExec, Address: 0x10 + i, Time: begin + 10*second, Stack: 1, API: "cudaGraphInstantiate"})
	}
	event(100, ledger.Event{Op: ledger.ObjectEnd, Kind: ledger.GraphExec, Address: 0x10, Time: begin + 11*second})
	event(100, ledger.Event{Op: ledger.ObjectCreate, Kind: ledger.Library, Address: 0x10, Size: 3 * mib, Time: begin + 10*second, Stack: 2, API: "cuLibraryLoadData"})
	event(100, ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Address: 0xa0, Size: 10 * mib, Time: begin + 12*second, Stack: 1, API: "cudaMalloc"})
	usage(20*second, 560, 700)
	return l.Snapshot(begin+30*second, time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC))
}

func wantLines(t *testing.T, got, want []string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestObjectsThatGrowWithAPartAreNamedWithTheirLines(t *testing.T) {
	wantLines(t, objectTexts(objectsSnapshot(), testStacks()), []string{
		"train [100] on cuda:0: while what is unexplained grew to 150 MiB it made 11 graph executables at /home/ada/llm/train.py:42 Trainer.step, 1 library (3.00 MiB of code) at Pool::take(unsigned long) src/pool.h:18",
		"server [200] on cuda:0: context, other before attach (600 MiB) includes 5 modules (5.00 MiB of code) at Pool::take(unsigned long) src/pool.h:18, 1 context at Pool::take(unsigned long) src/pool.h:18",
	})
}

func TestLittleThatIsUnexplainedNeedsNoObjects(t *testing.T) {
	s := objectsSnapshot()
	for i := range s.Balances {
		s.Balances[i].Usage = min(s.Balances[i].Usage, s.Balances[i].Baseline+s.Balances[i].Live+littleUnexplained)
	}
	for _, text := range objectTexts(s, testStacks()) {
		if strings.Contains(text, "unexplained") {
			t.Error(text)
		}
	}
}

func TestProcessesWithOnlyAContextShareASentence(t *testing.T) {
	wantLines(t, contextOnlyTexts(objectsSnapshot(), testStacks()), []string{
		"3 processes loader [301, 302, 303]: no GPU memory but a context, made at /home/ada/llm/train.py:42 Trainer.step: 500 MiB to 512 MiB each, 1.48 GiB in all",
		"loader [300]: no GPU memory allocated since tracing began; its context and older memory: 700 MiB",
	})
}

func TestObjectsAndContextsAreInTheJSON(t *testing.T) {
	r := newLeaksReport(objectsSnapshot(), testStacks(), Options{})
	var grown, live uint64
	for _, o := range r.Objects {
		live += o.Live
		if o.Unexplained {
			grown += o.Live - o.Before
		}
	}
	if len(r.ContextOnly) != 4 || live != 11+1+1+5+3 || grown != 12 {
		t.Errorf("%d processes with contexts only, %d objects live, %d grown: %+v", len(r.ContextOnly), live, grown, r.Objects)
	}
}

func TestManyProcessesWithObjectsTakeFewLines(t *testing.T) {
	var list []objectText
	for i := range uint64(200) {
		list = append(list, objectText{i, fmt.Sprint("process ", i)})
	}
	wantLines(t, mostTexts(list, "more such part"), []string{"process 199", "process 198", "process 197", "process 196", "process 195", "process 194", "194 more such parts (vramprof leaks --json lists all)"})
}
