// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// shares is what user space knows of bpf/shares.h; guarded by Tracer.mu.
type shares struct {
	memory []byte            // of the map tables
	lostBy map[uint32]uint64 // what ended processes lost, by pid
	stacks map[uint32]uint64 // likewise, stacks
}

// maxLostBy bounds the ended processes whose losses are kept: of further ones they are in the sum alone.
const maxLostBy = 1 << 14

// limitTables tells the kernel half how much room its tables and rings have.
func limitTables(spec *ebpf.CollectionSpec) error {
	for variable, name := range map[string]string{"max_threads": "threads", "max_blocks": "blocks", "events_size": "events", "stacks_size": "stack_events"} {
		if err := spec.Variables[variable].Set(uint64(spec.Maps[name].MaxEntries)); err != nil {
			return fmt.Errorf("set the room of the map %s: %w", name, err)
		}
	}
	return nil
}

func (s *shares) open(tables *ebpf.Map) (err error) {
	s.lostBy, s.stacks = map[uint32]uint64{}, map[uint32]uint64{}
	if s.memory, err = unix.Mmap(tables.FD(), 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map the counts of tables: %w", err)
	}
	return nil
}

func (s *shares) close() {
	if s.memory != nil {
		_ = unix.Munmap(s.memory)
		s.memory = nil
	}
}

// used is how much of a table is taken. The kernel half counts in the same memory.
func (s *shares) used(table uint32) *uint64 {
	return (*uint64)(unsafe.Pointer(&s.memory[8*table]))
}

// leaveRoom gives back the room that an allocator's blocks had, when they are gone.
func (s *shares) leaveRoom(room uint64) {
	if room > 0 && s.memory != nil {
		atomic.AddUint64(s.used(bpf.TableBlocks), -room)
	}
}

// leaveShare keeps what a process lost that has ended, and has the kernel half begin anew with its pid; in a turn.
func (t *Tracer) leaveShare(pid uint32) {
	var share bpf.Share
	if t.coll.Maps["shares"].Lookup(pid, &share) != nil { // both in one call from Linux 5.14 on
		return
	}
	_ = t.coll.Maps["shares"].Delete(pid)
	for by, n := range map[*map[uint32]uint64]uint64{&t.shares.lostBy: share.Lost, &t.shares.stacks: share.LostStacks} {
		if _, known := (*by)[pid]; n > 0 && (known || len(*by) < maxLostBy) {
			(*by)[pid] += n
		}
	}
}

// lostBy is how many events, and how many stacks, each process has lost so far, by pid: refused beyond its share of what all
// share, or without room; in a turn.
func (t *Tracer) lostBy() (events, stacks map[uint32]uint64) {
	events, stacks = maps.Clone(t.shares.lostBy), maps.Clone(t.shares.stacks)
	var cursor ebpf.MapBatchCursor
	pids, list := make([]uint32, 1024), make([]bpf.Share, 1024)
	for {
		n, err := t.coll.Maps["shares"].BatchLookup(&cursor, pids, list, nil)
		for i := range n {
			if list[i].Lost > 0 {
				events[pids[i]] += list[i].Lost
			}
			if list[i].LostStacks > 0 {
				stacks[pids[i]] += list[i].LostStacks
			}
		}
		if err != nil {
			if !errors.Is(err, ebpf.ErrKeyNotExist) { // that was the last batch
				t.defects.Note("a look at shares", err)
			}
			return events, stacks
		}
	}
}

// lossText names the processes that lost most.
func (t *Tracer) lossText() string {
	t.desk.Take()
	defer t.turn.Done()
	events, stacks := t.lostBy()
	const named = 3
	pids := slices.SortedFunc(maps.Keys(events), func(a, b uint32) int { return cmp.Or(cmp.Compare(events[b], events[a]), cmp.Compare(a, b)) })
	var list []string
	for _, pid := range pids[:min(named, len(pids))] {
		list = append(list, fmt.Sprintf("process %d lost %d", pid, events[pid]))
	}
	if more := len(pids) - named; more > 0 {
		list = append(list, fmt.Sprintf("%d more processes lost fewer", more))
	}
	for pid, n := range stacks {
		if events[pid] == 0 && len(list) <= 2*named {
			list = append(list, fmt.Sprintf("process %d lost %d stacks", pid, n))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "events that processes sent beyond their share of the kernel half's tables and rings, or without room: " + strings.Join(list, ", ")
}

// forgetShares drops the shares of processes that are gone and never were known.
func (t *Tracer) forgetShares() {
	t.desk.Take()
	defer t.turn.Done()
	var gone []uint32
	var pid uint32
	var share bpf.Share
	for i := t.coll.Maps["shares"].Iterate(); i.Next(&pid, &share); {
		if t.processes[pid] == nil && !procfs.Exists(pid) {
			gone = append(gone, pid)
		}
	}
	for _, pid := range gone {
		t.leaveShare(pid)
	}
}
