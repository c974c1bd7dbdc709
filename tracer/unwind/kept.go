// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"sync"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"go.opentelemetry.io/ebpf-profiler/support"

	"github.com/vramprof/vramprof/tracer/tablecache"
)

// leastKept is how many rows a table has at least that is kept on disk: to build a smaller one takes
// about as long as to read it.
const leastKept = 4096

// profilerVersion is that of the code that builds tables: another version may build other ones.
const profilerVersion = "v0.0.202633"

// kept reads tables from the cache, and writes new ones there. The profiler numbers the rules of a
// session. So for a table of the cache it gets the rules alone, as if they were a small table, and
// tables then puts the rows in place of it. Without a cache, dir is nil. Only the goroutine that
// holds Unwinder.mu calls its methods.
type kept struct {
	dir    *tablecache.Dir
	opened *boundedFile // the latest file of the profiler's
	rules  map[uint16]tablecache.Rule

	key     tablecache.Key    // of the file at hand
	table   *tablecache.Table // from the cache; nil: the profiler builds it
	source  tablecache.Source // of a table that the profiler builds
	rows    []ebpfapi.StackDeltaEBPF
	keeping bool // the table at hand is to be kept
	writing sync.WaitGroup
	disk    sync.Mutex // one table is written at a time
}

// keptTables is the profiler's source of tables, with a cache.
type keptTables struct {
	nativeunwind.StackDeltaProvider
	u *Unwinder
}

func (k keptTables) GetIntervalDataForFile(ref *pfelf.Reference) (*stackdeltatypes.IntervalData, error) {
	kept := &k.u.tables.kept
	kept.table, kept.keeping, kept.rows = nil, false, nil
	if _, err := ref.GetELF(); err != nil || !kept.begin(ref.FileName()) {
		return k.StackDeltaProvider.GetIntervalDataForFile(ref)
	}
	if table, err := kept.dir.Load(kept.key); err == nil && table.Source.Matches(kept.opened.f) {
		kept.table = table
		return rulesAlone(table), nil
	}
	data, err := k.StackDeltaProvider.GetIntervalDataForFile(ref)
	if err == nil {
		kept.source, kept.keeping = kept.opened.log.Source()
	}
	kept.opened.log = nil // what follows is not for the table
	return data, err
}

// begin reports whether the table of a file can be in the cache.
func (k *kept) begin(name string) bool {
	if k.dir == nil || k.opened == nil || k.opened.log == nil || k.opened.name != name {
		return false
	}
	k.key = tablecache.KeyOf(k.opened.identity, profilerVersion)
	return true
}

// rulesAlone returns a table for the profiler with the rules of t, each of which becomes a row. The
// profiler merges a row with the next one that is at most two bytes away and differs by 8.
func rulesAlone(t *tablecache.Table) *stackdeltatypes.IntervalData {
	block := &stackdeltatypes.BasicBlock{Start: t.First, End: t.First + uint64(len(t.Pages)-1)<<support.StackDeltaPageBits}
	for _, rule := range t.Rules {
		first := stackdeltatypes.UnwindInfo(rule)
		first.MergeOpcode = 0
		block.Deltas = append(block.Deltas, stackdeltatypes.StackDelta{Info: first})
		if rule.MergeOpcode != 0 {
			second := first
			if second.Param += 8; rule.MergeOpcode&support.MergeOpcodeNegative != 0 {
				second.Param -= 16
			}
			distance := uint32(rule.MergeOpcode &^ support.MergeOpcodeNegative)
			block.Deltas = append(block.Deltas, stackdeltatypes.StackDelta{Offset: distance, Info: second})
		}
	}
	return &stackdeltatypes.IntervalData{NumDeltas: uint32(len(block.Deltas) + 1), Blocks: []*stackdeltatypes.BasicBlock{block}}
}

var errRuleNumbers = errors.New("the table of the cache has other rules than the profiler")

// rowsFor returns the rows of the table at hand: those of the profiler, or those of the cache with
// the numbers of rules that the profiler has given them.
func (k *kept) rowsFor(deltas []ebpfapi.StackDeltaEBPF) ([]support.StackDelta, error) {
	if k.table == nil {
		if k.rows = nil; k.keeping && len(deltas) >= leastKept {
			k.rows = deltas
		}
		rows := make([]support.StackDelta, len(deltas))
		for i, d := range deltas {
			rows[i] = support.StackDelta{AddrLow: d.AddressLow, UnwindInfo: d.UnwindInfo}
		}
		return rows, nil
	}
	if len(deltas) != len(k.table.Rules)+1 { // the last one ends the table
		return nil, errRuleNumbers
	}
	rows := make([]support.StackDelta, len(k.table.Rows))
	for i, row := range k.table.Rows {
		rows[i] = support.StackDelta{AddrLow: row.AddressLow, UnwindInfo: row.Rule}
		if row.Rule&tablecache.Command == 0 {
			rows[i].UnwindInfo = deltas[row.Rule].UnwindInfo
		}
	}
	return rows, nil
}

// pagesFor returns how many rows each page of the table at hand has. It writes a new table into the
// cache, on a goroutine of its own.
func (k *kept) pagesFor(pages []uint16, first uint64) []uint16 {
	switch {
	case k.table != nil:
		return k.table.Pages
	case len(k.rows) == 0:
		return pages
	}
	table := &tablecache.Table{Source: k.source, First: first, Pages: pages, Rows: make([]tablecache.Row, len(k.rows))}
	numbers := map[uint16]uint16{}
	for i, d := range k.rows {
		number := d.UnwindInfo
		if number&support.DeltaCommandFlag == 0 {
			own, known := numbers[number]
			if !known {
				own = uint16(len(table.Rules))
				numbers[number] = own
				table.Rules = append(table.Rules, k.rules[number])
			}
			number = own
		}
		table.Rows[i] = tablecache.Row{AddressLow: d.AddressLow, Rule: number}
	}
	k.rows = nil
	key := k.key
	k.writing.Go(func() {
		k.disk.Lock()
		defer k.disk.Unlock()
		_ = k.dir.Store(key, table) // without it, the next session builds the table again
	})
	return pages
}

// UpdateStackDeltaPages implements the process manager's call after UpdateExeIDToStackDeltas.
func (t *tables) UpdateStackDeltaPages(file host.FileID, pages []uint16, size uint16, first uint64) error {
	return t.EbpfHandler.UpdateStackDeltaPages(file, t.kept.pagesFor(pages, first), size, first)
}
