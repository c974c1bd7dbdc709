// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/ledger"
)

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

func TestImportedMemoryIsInNoSum(t *testing.T) {
	s, st := reporttest.KindsSnapshot(), reporttest.Stacks()
	own := ownLive(s)
	const imported, imports = 4352 << 20, 3

	var live, alloc, objects int64
	for _, x := range parsed(t, s, st).Sample {
		if p := x.Label["plane"][0]; p == report.PlaneBefore || p == report.PlaneUnexplained || p == report.PlaneRounding {
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

	r := json.NewLeaks(s, st, report.Options{})
	if r.LiveBytes != own || r.ImportedBytes != imported || r.ImportedCount != imports {
		t.Errorf("JSON has %d live and %d imported bytes of %d, want %d, %d, %d", r.LiveBytes, r.ImportedBytes, r.ImportedCount, own, uint64(imported), imports)
	}
	list := report.Leaks(s, report.Options{})
	gpu, _, host := report.DivideLeaks(list)
	first := slices.IndexFunc(gpu, func(x ledger.Site) bool { return x.Kind == ledger.Imported })
	if first != len(gpu)-imports || len(host) != 3 {
		t.Errorf("imported memory begins at site %d of %d, with %d of host memory behind, want it behind all others of GPUs, and 3", first, len(gpu), len(host))
	}

	var b bytes.Buffer
	if err := text.WriteLeaks(&b, s, st, report.Options{Top: 2}, text.Screen{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("Live GPU memory: %s in 10 allocations ¹ from %d sites\n", format.Bytes(own-1056*reporttest.MiB-8192), first),
		"Live managed memory: 32.0 MiB in 1 allocation ¹ from 1 site\n",
		"Live host memory: 1.00 GiB in 3 allocations ¹ from 3 sites\n",
		"\nnot counted, as it is imported: 3 allocations, 4.25 GiB\n",
		"\nof which freed by the end of a process: 1 allocation, 10.0 MiB\n",
		"more lines of imported memory (-T shows more)\n",
		"\njob [900] ended 29s ago and gave back the 100 MiB shown for it\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestProfileSaysWhatSamplesCannot(t *testing.T) {
	got := strings.Join(parsed(t, reporttest.KindsSnapshot(), reporttest.Stacks()).Comments, "\n") + "\n"
	for _, want := range []string{
		"+ driver's rounding 1.84 GiB (up to 1.80 GiB of it idle in pools) + context,",
		"+ allocations, GPU unknown 8.00 MiB + unexplained 108 MiB\n",
		"server [700] on cuda:0: 2 async pools: 1.20 GiB used, may hold up to 3.03 GiB\n",
		"server [700]: freed by context destroy: 4 allocations, 2.50 KiB\n",
		"job [900] ended 29s ago and gave back the 100 MiB shown for it\n",
		"worker [800] on cuda:0 MIG-9c0d1e2f-0000-0000-0000-000000000000: NVML usage",
		"samples of imported memory have no bytes, as those of its owner have them: 3 allocations, 4.25 GiB\n",
		"doubt: 1 allocation of unknown size is counted with 0 bytes\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no comment %q in\n%s", want, got)
		}
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
