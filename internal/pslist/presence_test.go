// SPDX-License-Identifier: Apache-2.0

package pslist

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/gpuprocs"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
)

var update = flag.Bool("update", false, "rewrite testdata")

// machine has one process of each kind.
func machine() *reportjson.ProcessesReport {
	const gone = 1 << 30 // no process has such a pid
	keepers := []gpuprocs.Process{
		{PID: gone + 1, InnerID: gone + 1, GPUs: []uint32{0}, Control: true, UVM: true},
		{PID: gone + 2, InnerID: gone + 2, State: 'Z', Threads: 3, GPUs: []uint32{0}, UVM: true, Command: "python3 train.py"},
		{PID: gone + 3, InnerID: gone + 3, GPUs: []uint32{0}, UVM: true, Orphan: &gpuprocs.Orphan{Worker: gpuprocs.TorchWorker, Clue: gpuprocs.ByGroup, Former: 4711, Forked: true}},
		{PID: gone + 4, InnerID: gone + 4, GPUs: []uint32{0}, UVM: true, Orphan: &gpuprocs.Orphan{Clue: gpuprocs.BySession, Former: 31, Lives: true, Name: "torch\x1b[31mrun"}},
		{PID: gone + 5, InnerID: gone + 5, GPUs: []uint32{0}, UVM: true, Role: gpuprocs.MPSServer},
		{PID: gone + 6, InnerID: gone + 6, Role: gpuprocs.MPSControl},
		{PID: gone + 7, InnerID: gone + 7, GPUs: []uint32{0}, UVM: true},
		{PID: gone + 8, InnerID: 1<<29 + 24, GPUs: []uint32{1}, UVM: true},
		{PID: gone + 9, InnerID: gone + 9, Buffers: []gpuprocs.Buffer{{Inode: 77, Bytes: 2 << 20, Exporter: "nvidia"}, {Inode: 78, Bytes: 1 << 20, Exporter: "nvidia"}}},
		{PID: gone + 10, InnerID: gone + 10, Buffers: []gpuprocs.Buffer{{Inode: 77, Bytes: 2 << 20, Exporter: "nvidia"}}},
		{PID: gone + 11, InnerID: gone + 11, GPUs: []uint32{0, 1}, Control: true},
		{PID: gone + 12, InnerID: gone + 12, GPUs: []uint32{1}, UVM: true, State: 'D'},
		{PID: gone + 13, InnerID: gone + 13, GPUs: []uint32{1}, Control: true, UVM: true, Passed: []gpuprocs.Passed{{Others: []uint32{gone + 1}}, {Others: []uint32{gone + 1, gone + 14}}}},
	}
	d := &driver{answers: true, index: map[string]int{"GPU-0": 0, "GPU-1": 1}, mps: []uint32{gone + 7}, usage: []ledger.Usage{
		{PID: gone + 2, UUID: "GPU-0", Bytes: 8 << 30}, {PID: gone + 3, UUID: "GPU-0", Bytes: 1 << 30}, {PID: gone + 7, UUID: "GPU-0", Bytes: 2 << 30},
		{PID: 1<<29 + 24, UUID: "GPU-1", Bytes: 5 << 20}, {PID: 1<<29 + 25, UUID: "GPU-0", Bytes: 6 << 20}, {PID: gone + 12, UUID: "GPU-1", Bytes: 1 << 30},
	}}
	d.gpus = divide([]ledger.GPU{{Index: 0, UUID: "GPU-0", Total: 80 << 30, Used: 12 << 30}, {Index: 1, UUID: "GPU-1", Total: 80 << 30, Used: 2 << 30}}, d.usage,
		[]ledger.Usage{{UUID: "GPU-1", Bytes: 512 << 20}})
	r := &reportjson.ProcessesReport{Version: 1, GPUs: d.gpus, Processes: merge([]libraries.Process{{PID: gone + 20, Libraries: []string{"libcuda.so.1"}}}, indexKeepers(keepers), d)}
	AddImports(r, &ledger.Snapshot{
		Processes: []ledger.Process{{PID: gone + 12}, {PID: gone + 3}, {PID: 4712, Comm: "export\x1b[31mer", End: 9}, {PID: 4713, Comm: "trainer"}},
		Sites: []ledger.Site{
			{Process: 1, Kind: ledger.Imported, LiveBytes: 3 << 30, LiveObjects: 2, Owners: []ledger.Owner{{Process: 2}, {Process: 3}}},
			{Process: 1, Kind: ledger.Device, LiveBytes: 1 << 30, LiveObjects: 1},
			{Process: 0, Kind: ledger.Imported, LiveObjects: 2},
		},
	})
	for i := range r.Processes {
		switch r.Processes[i].PID {
		case gone + 1:
			r.Processes[i].Workload = &reportjson.WorkloadReport{Namespace: "ml", Pod: "llama-0", Container: strings.Repeat("0123456789abcdef", 4)}
		case gone + 13:
			r.Processes[i].Workload = &reportjson.WorkloadReport{Container: strings.Repeat("0123456789abcdef", 4)}
		}
		r.Processes[i].Command = fmt.Sprint("program", r.Processes[i].PID%100)
		r.Processes[i].PID %= 1 << 28
		if p := r.Processes[i].Presence; p != nil {
			p.NamedPID %= 1 << 28
			p.Unseen = p.Unseen && r.Processes[i].PID == 25 // the others are stand-ins
			for k := range p.Passed {
				for n := range p.Passed[k].Others {
					p.Passed[k].Others[n] %= 1 << 28
				}
			}
			for k := range p.Buffers {
				for n := range p.Buffers[k].Others {
					p.Buffers[k].Others[n] %= 1 << 28
				}
			}
		}
	}
	return r
}

func TestProcessesThatNVMLDoesNotListAreListedWithTheReason(t *testing.T) {
	for _, columns := range []int{44, 80, 120} {
		for _, hints := range []bool{false, true} {
			r := machine()
			name := fmt.Sprintf("notes-%d.txt", columns)
			if hints {
				Hint(r)
				name = fmt.Sprintf("hints-%d.txt", columns)
			}
			var out strings.Builder
			if err := Write(&out, r, columns); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || string(want) != out.String() {
				t.Errorf("%s differs (%v): go test ./internal/pslist -update writes it\n%s", name, err, out.String())
			}
			for line := range strings.Lines(out.String()) {
				line = strings.TrimSuffix(line, "\n")
				if n := utf8.RuneCountInString(line); n > columns || strings.ContainsRune(line, 0x1b) {
					t.Errorf("%s: %d columns, or a control character: %q", name, n, line)
				}
			}
		}
	}
}

// The parts of a GPU add up to what NVML reports for it.
func TestWhatNoProcessIsListedForIsTheRest(t *testing.T) {
	for _, g := range machine().GPUs {
		if g.Listed+g.Nameless+g.Unattributed != g.Used || g.Unattributed == 0 {
			t.Errorf("%+v does not add up", g)
		}
	}
	parts := divide([]ledger.GPU{{UUID: "GPU-0", Total: 80, Used: 50}, {UUID: "MIG-0", Parent: "GPU-0", Total: 40, Used: 30}, {UUID: "GPU-1", Integrated: true, Total: 9, Used: 5}},
		[]ledger.Usage{{PID: 1, UUID: "MIG-0", Bytes: 20}, {PID: 2, UUID: "GPU-0", Bytes: 10}, {PID: 3, UUID: "GPU-1", Bytes: 1}}, nil)
	if want := []reportjson.GPUMemoryReport{{UUID: "GPU-0", Used: 50, Listed: 30, Unattributed: 20}}; !reflect.DeepEqual(parts, want) {
		t.Errorf("got %+v, want %+v", parts, want)
	}
	if parts := divide([]ledger.GPU{{UUID: "GPU-0", Total: 80, Used: 5}}, []ledger.Usage{{PID: 1, UUID: "GPU-0", Bytes: 6}}, nil); parts[0].Unattributed != 0 {
		t.Errorf("a reading that is older than the sum: %+v", parts)
	}
}

func TestAPidOfAnotherNamespaceIsTranslatedOnlyIfThatIsUnambiguous(t *testing.T) {
	a := gpuprocs.Process{PID: 500, InnerID: 12, UVM: true}
	b := gpuprocs.Process{PID: 600, InnerID: 12, UVM: true}
	own := gpuprocs.Process{PID: 12, InnerID: 12, UVM: true}
	for _, c := range []struct {
		name    string
		keepers []gpuprocs.Process
		exists  bool
		want    uint32
	}{
		{"no such pid here", []gpuprocs.Process{a}, false, 500},
		{"another process here, which keeps no GPU", []gpuprocs.Process{a}, true, 500},
		{"it keeps a GPU itself", []gpuprocs.Process{a, own}, true, 12},
		{"two of that pid", []gpuprocs.Process{a, b}, false, 12},
		{"nobody", nil, true, 12},
	} {
		if got := indexKeepers(c.keepers).seenAs(12, c.exists); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestASessionNamesWhoSharesMemoryWithItsProcesses, and nobody else.
func TestASessionNamesWhoSharesMemoryWithItsProcesses(t *testing.T) {
	keepers := []gpuprocs.Process{
		{PID: 9, Buffers: []gpuprocs.Buffer{{Inode: 77, Bytes: 2 << 20, Exporter: "nvidia"}, {Inode: 78, Bytes: 1 << 20, Exporter: "nvidia"}}},
		{PID: 10, Buffers: []gpuprocs.Buffer{{Inode: 77, Bytes: 2 << 20, Exporter: "nvidia"}}},
		{PID: 11, Buffers: []gpuprocs.Buffer{{Inode: 79, Bytes: 2 << 20}}}, // alone
		{PID: 12, Control: true, Passed: []gpuprocs.Passed{{Others: []uint32{9}}}},
		{PID: 13, Control: true},
	}
	want := []string{
		"process 9 has 1 dma-buf (2.00 MiB of nvidia), shared with 10",
		"process 12 has 1 descriptor of nvidiactl in common with 9, as CUDA exports memory",
	}
	if got := sharedBy([]uint32{9, 11, 12, 13}, indexKeepers(keepers)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
