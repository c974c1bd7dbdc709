// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"go.opentelemetry.io/ebpf-profiler/support"
	"go.opentelemetry.io/ebpf-profiler/util"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/unwindcache"
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

	u      *Unwinder // u.loading is the process; u.mu is held
	shares *shares
	kept   kept // u.mu is held
}

// UpdateUnwindInfo adds a rule of the profiler's own: those of a vDSO without tables.
func (t *tables) UpdateUnwindInfo(index uint16, rule stackdeltatypes.UnwindInfo) error {
	if index >= profilerRules {
		return errRules
	}
	return t.EbpfHandler.UpdateUnwindInfo(index, rule)
}

func newTables(handler ebpfapi.EbpfHandler, list map[string]*ebpf.Map, inner *ebpf.MapSpec, u *Unwinder, cache *unwindcache.Dir) *tables {
	t := &tables{
		EbpfHandler: handler, inner: inner, outer: map[uint16]*ebpf.Map{},
		slots: make(chan struct{}, 64), u: u, shares: newShares(handler.UpdateUnwindInfo), kept: kept{dir: cache},
	}
	for i := uint16(support.StackDeltaBucketSmallest); i <= support.StackDeltaBucketLargest; i++ {
		t.outer[i] = list[fmt.Sprintf("exe_id_to_%d_stack_deltas", i)]
	}
	return t
}

// UpdateExeIDToStackDeltas loads the table of one file: a map of 2^n entries in the outer map of
// that size. It returns n.
func (t *tables) UpdateExeIDToStackDeltas(file host.FileID, deltas []ebpfapi.StackDeltaEBPF) (uint16, error) {
	count := len(deltas)
	if t.kept.table != nil {
		count = len(t.kept.table.Rows)
	}
	size := uint16(max(bits.Len32(uint32(count)), support.StackDeltaBucketSmallest))
	if t.outer[size] == nil {
		return 0, fmt.Errorf("a table of %d rows is too large for the unwinder", count)
	}
	list, err := t.rowsFor(file, deltas, 1<<size)
	if err != nil {
		return 0, err
	}
	if err := t.load(file, size, list); err != nil {
		t.shares.give(file)
		return 0, err
	}
	return size, nil
}

// rowsFor returns the rows of the table at hand with the numbers of its rules, and reserves room
// for it in the kernel, with so many rows.
func (t *tables) rowsFor(file host.FileID, deltas []ebpfapi.StackDeltaEBPF, reserved int) ([]support.StackDelta, error) {
	pid := t.u.loading
	table := t.kept.table
	if table == nil {
		_, err := t.shares.take(file, pid, userOf(pid), amounts{ofRows: reserved, ofPages: 1}, nil)
		list := make([]support.StackDelta, len(deltas))
		for i, d := range deltas {
			list[i] = support.StackDelta{AddrLow: d.AddressLow, UnwindInfo: d.UnwindInfo}
		}
		return list, err
	}
	numbers, err := t.shares.take(file, pid, userOf(pid), amounts{ofRows: reserved, ofPages: len(table.Pages)}, table.Rules)
	if err != nil {
		return nil, err
	}
	list := make([]support.StackDelta, len(table.Rows))
	for i, row := range table.Rows {
		list[i] = support.StackDelta{AddrLow: row.AddressLow, UnwindInfo: row.Rule}
		if row.Rule&unwindcache.Command == 0 {
			list[i].UnwindInfo = numbers[row.Rule]
		}
	}
	return list, nil
}

// load creates the map with the rows of a file, at most 2^size.
func (t *tables) load(file host.FileID, size uint16, list []support.StackDelta) error {
	spec := t.inner.Copy()
	spec.Name = "unwind_table"
	spec.MaxEntries = 1 << size
	if size >= leastMapped {
		spec.Flags |= unix.BPF_F_MMAPABLE
	}
	table, err := ebpf.NewMap(spec)
	if err != nil {
		return fmt.Errorf("create an unwind table of %d rows: %w", len(list), err)
	}
	if err := fill(table, list); err != nil {
		table.Close()
		return fmt.Errorf("fill an unwind table of %d rows: %w", len(list), err)
	}
	outer := t.outer[size]
	t.start(func() {
		defer table.Close()
		// A failure leads to truncated stacks, which are counted by reason.
		_ = outer.Put(uint64(file), uint32(table.FD()))
	})
	return nil
}

// UpdateStackDeltaPages implements the process manager's call after UpdateExeIDToStackDeltas.
func (t *tables) UpdateStackDeltaPages(file host.FileID, list []uint16, size uint16, first uint64) error {
	if t.kept.table != nil {
		list = t.kept.table.Pages
		t.kept.store()
	}
	return t.EbpfHandler.UpdateStackDeltaPages(file, list, size, first)
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
	t.u.codes.drop(file)
	// The profiler stops unloading files at the first error, and tries the same file again.
	if err := outer.Delete(uint64(file)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	t.shares.give(file) // the kernel waited until no program reads the table
	return nil
}

// DeleteStackDeltaPage removes one page of the table of a file.
func (t *tables) DeleteStackDeltaPage(file host.FileID, page uint64) error {
	if err := t.EbpfHandler.DeleteStackDeltaPage(file, page); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// UpdatePidPageMappingInfo adds one prefix to the draft of the process being loaded.
func (t *tables) UpdatePidPageMappingInfo(_ libpf.PID, prefix lpm.Prefix, file, bias uint64) error {
	return t.u.layouts.put(prefix, span{file, bias})
}

// DeletePidPageMappingInfo removes prefixes from the draft.
func (t *tables) DeletePidPageMappingInfo(_ libpf.PID, prefixes []lpm.Prefix) (uint64, error) {
	return t.u.layouts.drop(prefixes), nil
}

// UpdateProcData stores how to walk the Python stacks of the process being loaded, with
// corrections.
func (t *tables) UpdateProcData(kind libpf.InterpreterType, _ libpf.PID, data unsafe.Pointer) error {
	if kind == libpf.Python {
		info := *(*support.PyProcInfo)(data)
		correctOffsets(&info)
		t.u.layouts.setPython(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info)))
	}
	return nil
}

// DeleteProcData removes that.
func (t *tables) DeleteProcData(kind libpf.InterpreterType, _ libpf.PID) error {
	if kind == libpf.Python {
		t.u.layouts.setPython(nil)
	}
	return nil
}

// UpdateInterpreterOffsets notes a file with an interpreter that the profiler supports.
func (t *tables) UpdateInterpreterOffsets(program uint16, file host.FileID, ranges []util.Range) error {
	t.u.pythons.support(file)
	return t.EbpfHandler.UpdateInterpreterOffsets(program, file, ranges)
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
