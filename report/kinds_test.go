// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// kindsSnapshot: a server with memory of every kind, a worker on a MIG instance that maps
// what the server exported, and a job that has ended.
func kindsSnapshot() *ledger.Snapshot {
	const gpu, split, part = "GPU-1a2b3c4d-0000-0000-0000-000000000000", "GPU-5e6f7a8b-0000-0000-0000-000000000000", "MIG-9c0d1e2f-0000-0000-0000-000000000000"
	begin := 1000 * second
	l := ledger.New(ledger.Options{Begin: begin, Host: "gpu-box-2"})
	l.Tell(ledger.GPUs{
		{Index: 0, UUID: gpu, Name: "NVIDIA A100-SXM4-80GB", Total: 81920 * mib, Used: 6500 * mib},
		{Index: 1, UUID: split, Name: "NVIDIA A100-SXM4-80GB", Total: 81920 * mib, Used: 700 * mib},
		{Index: 1, UUID: part, Parent: split, Name: "NVIDIA A100-SXM4-80GB MIG 1g.10gb", Total: 9728 * mib, Used: 600 * mib},
	})

	for _, p := range []ledger.Process{
		{PID: 700, Comm: "server", Exe: "/srv/infer/bin/infer", Begin: begin, Devices: []string{gpu, ""}},
		{PID: 800, Comm: "worker", Exe: "/usr/bin/python3.11", Begin: begin, Devices: []string{part}},
		{PID: 900, Comm: "job", Exe: "/usr/bin/job", Begin: begin, Devices: []string{gpu}},
	} {
		l.Tell(p)
	}
	l.Tell(ledger.UsageReading{Time: begin, Usages: []ledger.Usage{{PID: 700, UUID: gpu, Bytes: 500 * mib}, {PID: 800, UUID: part, Bytes: 400 * mib}, {PID: 900, UUID: gpu, Bytes: 90 * mib}}})

	at := begin
	apply := func(e ledger.Event) {
		at += second / 10
		e.Time, e.TID = at, e.PID
		l.Apply(&e)
	}
	alloc := func(pid uint32, kind ledger.Kind, space ledger.Space, device int32, address, size, stack uint64, api string) {
		apply(ledger.Event{Op: ledger.Alloc, PID: pid, Kind: kind, Space: space, Device: device, Address: address, Size: size, Stack: stack, API: api})
	}
	alloc(700, ledger.Device, 0, 0, 0x100, 2048*mib, 2, "cuMemAlloc_v2")
	alloc(700, ledger.Device, 0, 1, 0x101, 8*mib, 2, "cuMemAlloc_v2")
	alloc(700, ledger.Managed, 0, 0, 0x200, 32*mib, 2, "cuMemAllocManaged")
	alloc(700, ledger.Async, 0, 0, 0x300, 1228*mib, 1, "cudaMallocAsync")
	alloc(700, ledger.Async, 0, 0, 0x301, 1844*mib, 1, "cudaMallocAsync")
	apply(ledger.Event{Op: ledger.Free, PID: 700, Address: 0x301})
	apply(ledger.Event{Op: ledger.PoolCreate, PID: 700, Device: 0, Handle: 0x77})
	apply(ledger.Event{Op: ledger.PoolThreshold, PID: 700, Device: 0, Handle: 0x77, Size: 64 * mib})
	apply(ledger.Event{Op: ledger.Alloc, PID: 700, Kind: ledger.Async, Address: 0x302, Size: 4 * mib, Handle: 0x77, Stack: 1, API: "cudaMallocFromPoolAsync"})
	alloc(700, ledger.VMM, ledger.Physical, 0, 0x400, 512*mib, 2, "cuMemCreate")
	alloc(700, ledger.Array, ledger.Arrays, 0, 0x500, 64*mib, 2, "cuArrayCreate_v2")
	alloc(700, ledger.Array, ledger.Mipmaps, 0, 0x501, ledger.UnknownSize, 4, "cuMipmappedArrayCreate")
	alloc(700, ledger.Graph, 0, 0, 0x600, 16*mib, 2, "cudaGraphLaunch")
	alloc(700, ledger.Pinned, 0, 0, 0x700, 4096, 2, "cuMemHostAlloc")
	alloc(700, ledger.Pinned, 0, 1, 0x701, 4096, 2, "cuMemHostAlloc")
	alloc(700, ledger.Registered, ledger.Registers, 0, 0x800, 1024*mib, 2, "cuMemHostRegister_v2")
	for i := range uint64(4) {
		apply(ledger.Event{Op: ledger.Alloc, PID: 700, Kind: ledger.Device, Context: 0xc2, Address: 0x900 + i, Size: 640, Stack: 2, API: "cuMemAlloc_v2"})
	}
	apply(ledger.Event{Op: ledger.ContextDestroy, PID: 700, Context: 0xc2})
	alloc(800, ledger.Imported, 0, 0, 0x100, 2048*mib, 1, "cudaIpcOpenMemHandle")
	alloc(800, ledger.Imported, ledger.Externals, 0, 0x110, 256*mib, 4, "cuImportExternalMemory")
	alloc(800, ledger.Async, 0, 0, 0x300, 100*mib, 1, "cudaMallocAsync")
	alloc(900, ledger.Device, 0, 0, 0x100, 10*mib, 2, "cuMemAlloc_v2")
	alloc(900, ledger.Imported, 0, 0, 0x200, 2048*mib, 2, "cuIpcOpenMemHandle_v2")
	l.Tell(ledger.UsageReading{Time: begin + 20*second, Usages: []ledger.Usage{{PID: 700, UUID: gpu, Bytes: 6376 * mib}, {PID: 800, UUID: part, Bytes: 510 * mib}, {PID: 900, UUID: gpu, Bytes: 100 * mib}}})
	at = begin + 30*second
	apply(ledger.Event{Op: ledger.Exit, PID: 900})
	return l.Snapshot(begin+60*second, time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC))
}

// ownLive sums what is in the books of processes as their own.
func ownLive(s *ledger.Snapshot) (live uint64) {
	for _, p := range s.Processes {
		for _, t := range p.Totals {
			if t.Kind != ledger.Imported {
				live += t.LiveBytes
			}
		}
	}
	return live
}

func TestEveryKindInText(t *testing.T) {
	s, st := kindsSnapshot(), testStacks()
	for width := minWidth; width <= 120; width++ {
		var b bytes.Buffer
		if err := errors.Join(
			WriteSummary(&b, s, st, Options{Top: 3}, Screen{Width: width}),
			WriteLeaks(&b, s, st, Options{Top: 20}, Screen{Width: width}),
		); err != nil {
			t.Fatal(err)
		}
		if checkText(t, b.String(), width); t.Failed() {
			t.Fatalf("at width %d", width)
		}
		if width == 80 {
			golden(t, "kinds80.txt", b.Bytes())
		}
	}
}

func TestEveryKindInJSON(t *testing.T) {
	s := kindsSnapshot()
	r := newLeaksReport(s, testStacks(), Options{Top: 1})
	r.Sites, r.Processes = nil, r.Processes[:1] // for brevity
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "kinds.json", append(text, '\n'))
}

func TestKindsHaveTheirWords(t *testing.T) {
	for _, c := range []struct {
		kind              ledger.Kind
		name, at, whereIs string
	}{
		{ledger.Device, "device", "cuda:1", "cuda:1"},
		{ledger.Managed, "managed", "cuda:1", "managed memory of cuda:1"},
		{ledger.Pinned, "pinned", "host", "pinned host memory"},
		{ledger.Registered, "registered", "host", "registered host memory"},
		{ledger.Async, "async", "cuda:1", "async memory of cuda:1"},
		{ledger.VMM, "vmm", "cuda:1", "vmm memory of cuda:1"},
		{ledger.Array, "array", "cuda:1", "array memory of cuda:1"},
		{ledger.Imported, "imported", "cuda:1", "imported memory of cuda:1"},
		{ledger.Graph, "graph", "cuda:1", "graph memory of cuda:1"},
		{ledger.Tensor, "tensor", "cuda:1", "tensors on cuda:1"},
		{99, "kind 99", "cuda:1", "kind 99 memory of cuda:1"},
	} {
		if name, at, whereIs := KindName(c.kind), DeviceName(1, c.kind), whereText(1, c.kind); name != c.name || at != c.at || whereIs != c.whereIs {
			t.Errorf("kind %d: %q, %q, %q, want %q, %q, %q", c.kind, name, at, whereIs, c.name, c.at, c.whereIs)
		}
	}
}

func TestImportedMemoryIsInNoSum(t *testing.T) {
	s, st := kindsSnapshot(), testStacks()
	own := ownLive(s)
	const imported, imports = 4352 << 20, 3

	var live, alloc, objects int64
	for _, x := range parsed(t, s, st).Sample {
		if x.Label["plane"][0] == PlaneBefore || x.Label["plane"][0] == PlaneUnexplained {
			continue
		}
		live += x.Value[3] + x.Value[5]
		if x.Label["kind"][0] == "imported" {
			alloc += x.Value[1]
			objects += x.Value[2]
			if x.NumLabel["bytes"][0] < 256<<20 || !strings.HasPrefix(x.Label["device"][0], "cuda:") {
				t.Errorf("a sample of imported memory does not tell its size or device: %v %v", x.NumLabel, x.Label)
			}
		}
	}
	if uint64(live) != own || alloc != 0 || objects != imports {
		t.Errorf("the profile has %d bytes in use, want %d; of imported memory %d bytes and %d objects, want 0 and %d", live, own, alloc, objects, imports)
	}

	r := newLeaksReport(s, st, Options{})
	if r.LiveBytes != own || r.ImportedBytes != imported || r.ImportedCount != imports {
		t.Errorf("JSON has %d live and %d imported bytes of %d, want %d, %d, %d", r.LiveBytes, r.ImportedBytes, r.ImportedCount, own, uint64(imported), imports)
	}
	list := Leaks(s, Options{})
	gpu, _, host := divided(list)
	first := slices.IndexFunc(gpu, func(x ledger.Site) bool { return x.Kind == ledger.Imported })
	if first != len(gpu)-imports || len(host) != 3 {
		t.Errorf("imported memory begins at site %d of %d, with %d of host memory behind, want it behind all others of GPUs, and 3", first, len(gpu), len(host))
	}

	var b bytes.Buffer
	if err := WriteLeaks(&b, s, st, Options{Top: 2}, Screen{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("Live GPU memory: %s in 10 allocations ¹ from %d sites\n", BytesText(own-1056*mib-8192), first),
		"Live managed memory: 32.0 MiB in 1 allocation ¹ from 1 site\n",
		"Live host memory: 1.00 GiB in 3 allocations ¹ from 3 sites\n",
		"\nnot counted, as it is imported: 3 allocations, 4.25 GiB\n",
		"\nof which freed by the end of a process: 1 allocation, 10.0 MiB\n",
		"more sites of imported memory (-T shows more)\n",
		"\njob [900] ended 29s ago and gave back the 10.0 MiB shown for it\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestAnImporterAloneHasNoLiveMemory(t *testing.T) {
	s := kindsSnapshot()
	s.Sites = slices.DeleteFunc(s.Sites, func(x ledger.Site) bool { return x.Kind != ledger.Imported })
	var b bytes.Buffer
	if err := errors.Join(WriteLeaks(&b, s, testStacks(), Options{}, Screen{}), WriteSummary(io.Discard, s, testStacks(), Options{}, Screen{})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"No live GPU memory", "1.  2.00 GiB", "    1 allocation, oldest 57s\n", "imported memory of cuda:0"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestProfileSaysWhatSamplesCannot(t *testing.T) {
	got := strings.Join(parsed(t, kindsSnapshot(), testStacks()).Comments, "\n") + "\n"
	for _, want := range []string{
		"+ allocations, GPU unknown 8.00 MiB + unexplained 1.95 GiB, of which up to 1.80 GiB idle in pools\n",
		"server [700] on cuda:0: 2 async pools: 1.20 GiB used, may hold up to 3.00 GiB\n",
		"server [700]: freed by context destroy: 4 allocations, 2.50 KiB\n",
		"job [900] ended 29s ago and gave back the 10.0 MiB shown for it\n",
		"worker [800] on cuda:0 MIG-9c0d1e2f-0000-0000-0000-000000000000: NVML usage",
		"samples of imported memory have no bytes, as those of its owner have them: 3 allocations, 4.25 GiB\n",
		"doubt: 1 allocation of unknown size is counted with 0 bytes\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no comment %q in\n%s", want, got)
		}
	}
}

func TestIdleIsNeverMoreThanWhatIsUnexplained(t *testing.T) {
	for _, c := range []struct {
		gap        int64
		idle, want uint64
	}{
		{10, 0, 0}, {0, 10, 0}, {-10, 10, 0}, {10, 4, 4}, {10, 40, 10},
	} {
		s := &ledger.Snapshot{Processes: make([]ledger.Process, 1), Balances: []ledger.Balance{{UUID: "GPU-a", Usage: uint64(10 + c.gap), Baseline: 10, Gap: c.gap, Idle: c.idle}}}
		if got := partIdle(s, &s.Parts()[0]); got != c.want {
			t.Errorf("gap %d, idle %d: %d, want %d", c.gap, c.idle, got, c.want)
		}
	}
}

func TestShortUUIDs(t *testing.T) {
	for uuid, want := range map[string]string{
		"GPU-1a2b3c4d-0000-1111-2222-333333333333":         "1a2b3c4d",
		"MIG-9c0d1e2f-0000-1111-2222-333333333333":         "9c0d1e2f",
		"MIG-GPU-1a2b3c4d-0000-1111-2222-333333333333/7/0": "1a2b3c4d/7/0",
		"": "", "\x1b[2Jx": "[2Jx",
	} {
		if got := shortUUID(uuid); got != want {
			t.Errorf("%q: %q, want %q", uuid, got, want)
		}
	}
}

func TestPoolsAreOneLineForEachDevice(t *testing.T) {
	s := &ledger.Snapshot{
		Processes: []ledger.Process{{PID: 7, Comm: "a"}, {PID: 8, Comm: "b"}, {PID: 9, Comm: "c", End: 1}},
		Pools: []ledger.Pool{
			{Device: -1, Used: mib, Reserve: 2 * mib},
			{Device: 0, Used: mib, Reserve: 2 * mib},
			{Device: 0, Handle: 1, Used: 4 * mib, Reserve: 4 * mib},
			{Device: 0, Handle: 2, Used: 8 * mib, Reserve: 8 * mib, Destroyed: true},
			{Process: 1, Device: 0, Used: mib, Reserve: 3 * mib},
			{Process: 1, Device: 1, Used: mib, Reserve: mib},
			{Process: 2, Device: 0, Used: mib, Reserve: 2 * mib},
		},
	}
	want := []string{
		"a [7]: async pool: 1.00 MiB used, may hold up to 2.00 MiB",
		"a [7] on cuda:0: 2 async pools: 5.00 MiB used, may hold up to 6.00 MiB",
		"b [8] on cuda:0: async pool: 1.00 MiB used, may hold up to 3.00 MiB",
	}
	if got := poolTexts(s); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMemoryIsInRowsByPlace(t *testing.T) {
	s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 7, Comm: "a", Totals: []ledger.Total{
		{Device: -1, Kind: ledger.Device, LiveBytes: 1},
		{Device: -1, Kind: ledger.Imported, LiveBytes: 2},
		{Device: 0, Kind: ledger.Managed, LiveBytes: 3, PeakBytes: 4},
		{Device: 0, Kind: ledger.Imported, LiveBytes: 5},
		{Device: 0, Kind: ledger.Pinned, LiveBytes: 6, PeakBytes: 6},
		{Device: 1, Kind: ledger.Pinned, LiveBytes: 3, PeakBytes: 3},
		{Device: 1, Kind: ledger.Device, LiveBytes: 7},
		{Device: 1, Kind: ledger.VMM, LiveBytes: 1},
	}}}}
	var got []string
	for _, row := range totalRows(newPage(Screen{Width: 80}), s)[1:] {
		got = append(got, strings.Join([]string{row[0], row[1], row[2], row[4]}, "|"))
	}
	want := []string{
		"a [7]|cuda:1|8 B|", "|  device|7 B|0 B", "|  vmm|1 B|0 B", "a [7]|unknown|1 B|0 B", "a [7]|cuda:0 managed|3 B|4 B",
		"a [7]|host pinned|9 B|", "a [7]|unknown imported|2 B|0 B", "a [7]|cuda:0 imported|5 B|0 B",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMainProcessOwnsMost(t *testing.T) {
	s := &ledger.Snapshot{Processes: []ledger.Process{
		{PID: 7, Totals: []ledger.Total{{Kind: ledger.Imported, LiveBytes: 9}, {Kind: ledger.Async, LiveBytes: 1}}},
		{PID: 8, Totals: []ledger.Total{{Kind: ledger.VMM, LiveBytes: 2}}},
	}}
	if p := mainProcess(s); p.PID != 8 {
		t.Errorf("process %d, want the one that owns most", p.PID)
	}
}

func TestSitesOfUnknownSizeAreLeaksToo(t *testing.T) {
	s := &ledger.Snapshot{
		Processes: []ledger.Process{{PID: 7, Comm: "a"}},
		Sites:     []ledger.Site{{API: "cuMipmappedArrayCreate", Kind: ledger.Array, LiveObjects: 2, Oldest: 1}, {API: "cudaMalloc", Kind: ledger.Device, AllocObjects: 3}},
		Stats:     ledger.Stats{UnknownSizes: 2},
	}
	var b bytes.Buffer
	if err := WriteLeaks(&b, s, stackMap{}, Options{}, Screen{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Live GPU memory: 0 B in 2 allocations ¹ from 1 site\n", "1.  unknown   cuMipmappedArrayCreate\n    2 allocations, oldest", "¹ 2 allocations of unknown size are counted with 0 bytes\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "\n2.  ") {
		t.Errorf("more than one site, or a share of nothing:\n%s", b.String())
	}
}
