// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/tablecache"
)

// Limits of tables in the kernel. The tables of PyTorch with CUDA have some 6 million rows.
const (
	maxFiles         = 16384
	maxRows          = 64 << 20 // of all files
	maxRowsOfProcess = 16 << 20 // of the files first seen in one process

	bytesOfRow = 8 // in the kernel: elements of an array are multiples of 8 bytes
)

// tables replaces the profiler's functions that load a file's table into the kernel. Each update of
// a map of maps waits for an RCU grace period, so updates run in parallel, and wait returns when
// all are done. It does not change RLIMIT_MEMLOCK, which the profiler raises at each step: root
// without CAP_SYS_RESOURCE may not, and from Linux 5.11 on BPF memory does not count against it.
type tables struct {
	ebpfapi.EbpfHandler
	outer   map[uint16]*ebpf.Map
	inner   *ebpf.MapSpec
	pending sync.WaitGroup
	slots   chan struct{}

	u     *Unwinder // u.loading is the process; u.mu is held
	rows  rowCount
	rules int            // in the kernel's array
	added map[uint32]int // rules by the process in which they were first seen; u.mu is held
	kept  kept           // u.mu is held
}

// Limits of the rules in the kernel's array, which tables share and which never leave it. The
// libraries of Debian's PyTorch have some 3,400.
const (
	maxRules          = 16384 // UNWIND_INFO_MAX_ENTRIES of the profiler
	maxRulesOfProcess = maxRules / 2
)

// UpdateUnwindInfo adds a rule that no table has had yet.
func (t *tables) UpdateUnwindInfo(index uint16, rule stackdeltatypes.UnwindInfo) error {
	switch {
	case int(index) >= maxRules:
		t.u.problem("stacks with new files are truncated: all unwind rules that there is room for are in use, until vramprof is started again")
		return errRules
	case t.added[t.u.loading] >= maxRulesOfProcess:
		t.u.problemOf(t.u.loading, fmt.Sprintf("stacks of process %d are truncated: its files have more new unwind rules than the %d that one process may add", t.u.loading, maxRulesOfProcess))
		return errRules
	}
	t.rules = int(index) + 1
	t.added[t.u.loading]++
	if t.kept.dir != nil {
		t.kept.rules[index] = tablecache.Rule(rule)
	}
	return t.EbpfHandler.UpdateUnwindInfo(index, rule)
}

var errRules = errors.New("no room for further unwind rules")

// rowCount counts the rows of tables, rounded up to their powers of two.
type rowCount struct {
	mu    sync.Mutex
	total int
	by    map[uint32]int // by the process in which a file was first seen
	of    map[host.FileID]rowsOf
}

// rowsOf is how many rows a file has, and the process in which it was first seen; 0: it has ended.
type rowsOf struct {
	pid uint32
	n   int
}

func newRowCount() rowCount { return rowCount{by: map[uint32]int{}, of: map[host.FileID]rowsOf{}} }

// take reports whether a process may have n more rows, for a file, and counts them.
func (r *rowCount) take(pid uint32, file host.FileID, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.total+n > maxRows || r.by[pid]+n > maxRowsOfProcess {
		return false
	}
	r.total += n
	r.by[pid] += n
	r.of[file] = rowsOf{pid, n}
	return true
}

// free releases the rows of a file. A process that runs for months and maps one file after the
// other has only those of the files that are loaded.
func (r *rowCount) free(file host.FileID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.of[file]
	delete(r.of, file)
	r.total -= x.n
	if x.pid != 0 {
		r.by[x.pid] -= x.n
	}
}

// forget gives the pid of a process that has ended to the next one, which begins with no rows.
func (r *rowCount) forget(pid uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, pid)
	for file, x := range r.of {
		if x.pid == pid {
			r.of[file] = rowsOf{0, x.n}
		}
	}
}

func newTables(handler ebpfapi.EbpfHandler, list map[string]*ebpf.Map, inner *ebpf.MapSpec, u *Unwinder) *tables {
	t := &tables{
		EbpfHandler: handler, inner: inner, outer: map[uint16]*ebpf.Map{},
		slots: make(chan struct{}, 64), u: u, rows: newRowCount(), added: map[uint32]int{},
		kept: kept{dir: u.cache, rules: map[uint16]tablecache.Rule{}},
	}
	for i := uint16(support.StackDeltaBucketSmallest); i <= support.StackDeltaBucketLargest; i++ {
		t.outer[i] = list[fmt.Sprintf("exe_id_to_%d_stack_deltas", i)]
	}
	return t
}

// UpdateExeIDToStackDeltas loads the table of one file: a map of 2^n entries in the outer map of
// that size. It returns n.
func (t *tables) UpdateExeIDToStackDeltas(file host.FileID, deltas []ebpfapi.StackDeltaEBPF) (uint16, error) {
	rows, err := t.kept.rowsFor(deltas)
	if err != nil {
		return 0, err
	}
	size := uint16(max(bits.Len32(uint32(len(rows))), support.StackDeltaBucketSmallest))
	outer := t.outer[size]
	if outer == nil {
		return 0, fmt.Errorf("a table of %d rows is too large for the unwinder", len(rows))
	}
	if !t.rows.take(t.u.loading, file, 1<<size) {
		t.u.problemOf(t.u.loading, fmt.Sprintf("stacks of process %d are truncated: the unwind tables of its files exceed the limit of one process, or of all", t.u.loading))
		return 0, fmt.Errorf("a table of %d rows exceeds the limit", len(rows))
	}
	spec := t.inner.Copy()
	spec.Name = "unwind_table"
	spec.MaxEntries = 1 << size
	if size >= leastMapped {
		spec.Flags |= unix.BPF_F_MMAPABLE
	}
	table, err := ebpf.NewMap(spec)
	if err != nil {
		t.rows.free(file)
		return 0, fmt.Errorf("create an unwind table of %d rows: %w", len(rows), err)
	}
	if err := fill(table, rows); err != nil {
		table.Close()
		t.rows.free(file)
		return 0, fmt.Errorf("fill an unwind table of %d rows: %w", len(rows), err)
	}
	t.start(func() {
		defer table.Close()
		// A failure leads to truncated stacks, which are counted by reason.
		_ = outer.Put(uint64(file), uint32(table.FD()))
	})
	return size, nil
}

// fill writes the rows of a new table.
func fill(table *ebpf.Map, rows []support.StackDelta) error {
	if table.Flags()&unix.BPF_F_MMAPABLE != 0 {
		memory, err := unix.Mmap(table.FD(), 0, int(table.MaxEntries())*bytesOfRow, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		for i, row := range rows {
			at := memory[i*bytesOfRow:][:4]
			binary.NativeEndian.PutUint16(at, row.AddrLow)
			binary.NativeEndian.PutUint16(at[2:], row.UnwindInfo)
		}
		return unix.Munmap(memory)
	}
	if len(rows) == 0 {
		return nil
	}
	keys := make([]uint32, len(rows))
	for i := range keys {
		keys[i] = uint32(i)
	}
	_, err := table.BatchUpdate(keys, rows, nil)
	return err
}

// DeleteExeIDToStackDeltas removes the table of one file.
func (t *tables) DeleteExeIDToStackDeltas(file host.FileID, size uint16) error {
	outer := t.outer[size]
	if outer == nil {
		return fmt.Errorf("no table of size 2^%d", size)
	}
	t.rows.free(file)
	t.u.codes.drop(file)
	// The profiler stops unloading files at the first error, and tries the same file again.
	if err := outer.Delete(uint64(file)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// DeleteStackDeltaPage removes one page of the table of a file.
func (t *tables) DeleteStackDeltaPage(file host.FileID, page uint64) error {
	if err := t.EbpfHandler.DeleteStackDeltaPage(file, page); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// start runs an update on a goroutine, at most cap(t.slots) at a time.
func (t *tables) start(update func()) {
	t.slots <- struct{}{}
	t.pending.Go(func() {
		defer func() { <-t.slots }()
		update()
	})
}

// wait returns when all started updates are done.
func (t *tables) wait() { t.pending.Wait() }

// tlsBaseOffset returns the offset of the thread pointer in task_struct: thread.fsbase on x86-64,
// thread.uw.tp_value on arm64.
func tlsBaseOffset(kernel *btf.Spec) (uint64, error) {
	var task *btf.Struct
	if err := kernel.TypeByName("task_struct", &task); err != nil {
		return 0, err
	}
	for _, path := range [][]string{{"thread", "fsbase"}, {"thread", "uw", "tp_value"}} {
		if offset, ok := fieldOffset(task, path); ok {
			return uint64(offset), nil
		}
	}
	return 0, fmt.Errorf("neither thread.fsbase nor thread.uw.tp_value exists")
}

func fieldOffset(t btf.Type, path []string) (uint32, bool) {
	if len(path) == 0 {
		return 0, true
	}
	var members []btf.Member
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		rest := path
		if m.Name == path[0] {
			rest = path[1:]
		} else if m.Name != "" {
			continue
		}
		if offset, ok := fieldOffset(m.Type, rest); ok {
			return m.Offset.Bytes() + offset, true
		}
	}
	return 0, false
}
