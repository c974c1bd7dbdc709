// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"go.opentelemetry.io/ebpf-profiler/processmanager/execinfomanager"
	"go.opentelemetry.io/ebpf-profiler/support"

	"github.com/vramprof/vramprof/tracer/unwindcache"
)

// profilers records the table that the profiler makes of a file.
type profilers struct {
	ebpfapi.EbpfHandler
	rules []stackdeltatypes.UnwindInfo
	rows  []ebpfapi.StackDeltaEBPF
	pages []uint16
	first uint64
}

func (p *profilers) UpdateUnwindInfo(_ uint16, rule stackdeltatypes.UnwindInfo) error {
	p.rules = append(p.rules, rule)
	return nil
}

func (p *profilers) UpdateExeIDToStackDeltas(_ host.FileID, rows []ebpfapi.StackDeltaEBPF) (uint16, error) {
	p.rows = rows
	return 8, nil
}

func (p *profilers) UpdateStackDeltaPages(_ host.FileID, pages []uint16, _ uint16, first uint64) error {
	p.pages, p.first = pages, first
	return nil
}

// The kernel half is the profiler's, so the tables must be those that the profiler would make.
func TestRowsAreThoseOfTheProfiler(t *testing.T) {
	files, _ := filepath.Glob("/lib/*-linux-gnu/lib[a-s]*.so.*")
	for _, name := range []string{"python3", "bash", "gcc"} {
		if path, err := exec.LookPath(name); err == nil {
			files = append(files, path)
		}
	}
	compared := 0
	for _, path := range files[max(len(files)-40, 0):] {
		if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
			continue
		}
		data, err := elfunwindinfo.ExtractELF(reference(t, path))
		if err != nil || data.NumDeltas == 0 {
			continue
		}
		want := &profilers{}
		manager, err := execinfomanager.NewExecutableInfoManager(elfunwindinfo.NewStackDeltaProvider(), want, interpreterconfig.NoInterpreters())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := manager.AddOrIncRef(1, reference(t, path)); err != nil {
			t.Fatal(path, err)
		}
		got, err := tableOf(data)
		if err != nil {
			t.Fatal(path, err)
		}
		compared++
		var rules []stackdeltatypes.UnwindInfo
		for _, x := range got.Rules {
			rules = append(rules, stackdeltatypes.UnwindInfo(x))
		}
		var rows []ebpfapi.StackDeltaEBPF
		for _, x := range got.Rows {
			rows = append(rows, ebpfapi.StackDeltaEBPF{AddressLow: x.AddressLow, UnwindInfo: x.Rule})
		}
		if !slices.Equal(rules, want.rules) || !slices.Equal(rows, want.rows) || !slices.Equal(got.Pages, want.pages) || got.First != want.first {
			t.Errorf("%s: %d rules, %d rows and %d pages from %x, want %d, %d and %d from %x", path,
				len(rules), len(rows), len(got.Pages), got.First, len(want.rules), len(want.rows), len(want.pages), want.first)
		}
	}
	if compared < 3 {
		t.Errorf("%d files with tables were found", compared)
	}
}

// A file chooses where its functions are, and how many rules they have.
func TestTablesOfForgedFilesAreBounded(t *testing.T) {
	deltas := stackdeltatypes.StackDeltaArray{{Info: stackdeltatypes.UnwindInfoStop}}
	var many stackdeltatypes.StackDeltaArray
	for i := range int32(maxRules + 1) {
		many = append(many, stackdeltatypes.StackDelta{Offset: uint32(i), Info: stackdeltatypes.UnwindInfo{Param: 64 * i}})
	}
	signal := stackdeltatypes.StackDeltaArray{{Info: stackdeltatypes.UnwindInfoSignal}}
	block := func(start, end uint64, deltas stackdeltatypes.StackDeltaArray) *stackdeltatypes.BasicBlock {
		return &stackdeltatypes.BasicBlock{Start: start, End: end, Deltas: deltas}
	}
	for name, blocks := range map[string][]*stackdeltatypes.BasicBlock{
		"pages":  {block(0, 1<<60, deltas)},
		"order":  {block(1<<20, 1<<21, deltas), block(0, 1<<10, deltas)},
		"before": {block(1<<16, 1<<17, signal)},
		"rules":  {block(0, 1<<20, many)},
	} {
		if table, err := tableOf(&stackdeltatypes.IntervalData{NumDeltas: 1, Blocks: blocks}); err == nil {
			t.Errorf("%s: %d pages, %d rules, %d rows", name, len(table.Pages), len(table.Rules), len(table.Rows))
		}
	}
	merged := stackdeltatypes.StackDeltaArray{{Info: stackdeltatypes.UnwindInfo{Param: 8}}, {Offset: 2, Info: stackdeltatypes.UnwindInfo{Param: 16}}}
	table, err := tableOf(&stackdeltatypes.IntervalData{NumDeltas: 2, Blocks: []*stackdeltatypes.BasicBlock{block(1<<16, 1<<16+9, merged)}})
	if err != nil || len(table.Rows) != 2 || table.Rules[0] != (unwindcache.Rule{Param: 8, MergeOpcode: 2}) || table.Rows[1].Rule != support.DeltaCommandFlag|uint16(support.UnwindCommandInvalid) {
		t.Errorf("%+v (%v)", table, err)
	}
}
