// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"sync"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"

	"github.com/vramprof/vramprof/tracer/unwindcache"
)

// leastKept is how many rows a table has at least that is kept on disk: to build a smaller one
// takes about as long as to read it.
const leastKept = 4096

// profilerVersion is that of the code that builds tables: another version may build other ones.
const profilerVersion = "v0.0.202633"

// kept reads tables from the cache, and writes new ones there. Without a cache, dir is nil. Only
// the goroutine that holds Unwinder.mu calls its methods.
type kept struct {
	dir    *unwindcache.Dir
	opened *boundedFile // the latest file of the profiler's

	key     unwindcache.Key    // of the file at hand
	table   *unwindcache.Table // its table; nil: the profiler itself makes it
	keep    bool               // the table is new, and is to be kept
	writing sync.WaitGroup
	disk    sync.Mutex // one table is written at a time
}

// keptTables is the profiler's source of tables. It passes on no rules: tables numbers them.
type keptTables struct {
	nativeunwind.StackDeltaProvider
	kept *kept
}

func (k keptTables) GetIntervalDataForFile(ref *pfelf.Reference) (*stackdeltatypes.IntervalData, error) {
	kept := k.kept
	kept.table, kept.keep = nil, false
	_, err := ref.GetELF()
	cached := err == nil && kept.begin(ref.FileName())
	if cached {
		if table, err := kept.dir.Load(kept.key); err == nil && table.Source.Matches(kept.opened.f) {
			kept.table = table
			return pagesAlone(table), nil
		}
	}
	data, err := k.StackDeltaProvider.GetIntervalDataForFile(ref)
	var source unwindcache.Source
	if cached {
		source, kept.keep = kept.opened.log.Source()
		kept.opened.log = nil // what follows is not for the table
	}
	if err != nil || data.NumDeltas == 0 {
		return data, err
	}
	if kept.table, err = tableOf(data); err != nil {
		return nil, fmt.Errorf("read the unwind tables of %s: %w", ref.FileName(), err)
	}
	kept.table.Source = source
	kept.keep = kept.keep && len(kept.table.Rows) >= leastKept
	return withoutRules(data), nil
}

// begin reports whether the table of a file can be in the cache.
func (k *kept) begin(name string) bool {
	if k.dir == nil || k.opened == nil || k.opened.log == nil || k.opened.name != name {
		return false
	}
	k.key = unwindcache.KeyOf(k.opened.identity, profilerVersion)
	return true
}

// store writes a new table into the cache, on a goroutine of its own.
func (k *kept) store() {
	if !k.keep {
		return
	}
	key, table := k.key, k.table
	k.writing.Go(func() {
		k.disk.Lock()
		defer k.disk.Unlock()
		_ = k.dir.Store(key, table) // without it, the next session builds the table again
	})
}
