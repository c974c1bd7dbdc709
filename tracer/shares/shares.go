// SPDX-License-Identifier: Apache-2.0

// Package shares computes how much of the kernel half's tables and rings each process takes, and
// what it lost: the user space half of bpf/shares.h.
package shares

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Shares counts what processes lost. Any goroutine may call its methods. Its lock is held while the
// kernel's map is read, so that what a process lost is counted once, whether it has ended or not.
type Shares struct {
	defects *panics.List
	room    []byte // of the map tables

	mu     sync.Mutex // guards what follows, and deletions from kernel
	kernel *ebpf.Map
	events map[uint32]uint64 // what ended processes lost, by pid
	stacks map[uint32]uint64 // likewise, stacks
	before lossSum           // of those that ended long ago
}

// lossSum is what many processes lost.
type lossSum struct{ processes, events, stacks uint64 }

// maxEnded bounds the ended processes whose losses are kept: those of further ones are in the sum
// alone.
const maxEnded = 1 << 14

// Limit tells the kernel half how much room its tables and rings have.
func Limit(spec *ebpf.CollectionSpec) error {
	for variable, name := range map[string]string{"max_threads": "threads", "max_blocks": "blocks", "events_size": "events", "stacks_size": "stack_events"} {
		if err := spec.Variables[variable].Set(uint64(bpf.Entries(spec.Maps[name]))); err != nil {
			return fmt.Errorf("set the room of the map %s: %w", name, err)
		}
	}
	return nil
}

// Open maps the kernel half's counts of its tables, and takes its map of shares, which stays the
// caller's.
func Open(tables, kernel *ebpf.Map, panics *panics.List) (*Shares, error) {
	room, err := unix.Mmap(tables.FD(), 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the counts of tables: %w", err)
	}
	return &Shares{defects: panics, room: room, kernel: kernel, events: map[uint32]uint64{}, stacks: map[uint32]uint64{}}, nil
}

// Close unmaps the counts. No other method may be called after it; s may be nil.
func (s *Shares) Close() {
	if s != nil && s.room != nil {
		_ = unix.Munmap(s.room)
		s.room = nil
	}
}

// Used returns how many entries of a table are taken.
func (s *Shares) Used(table uint32) uint64 { return atomic.LoadUint64(s.used(table)) }

// used is where the kernel half counts, too.
func (s *Shares) used(table uint32) *uint64 {
	return (*uint64)(unsafe.Pointer(&s.room[8*table]))
}

// LeaveRoom gives back the room that an allocator's blocks had, when they are gone.
func (s *Shares) LeaveRoom(room uint64) {
	if room > 0 && s.room != nil {
		atomic.AddUint64(s.used(bpf.TableBlocks), -room)
	}
}

// Leave keeps what a process lost that has ended, and has the kernel half begin anew with its pid.
func (s *Shares) Leave(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var share bpf.Share
	if s.kernel.Lookup(pid, &share) != nil { // both in one call from Linux 5.14 on
		return
	}
	_ = s.kernel.Delete(pid)
	keep := func(by map[uint32]uint64, n uint64) {
		if _, known := by[pid]; n > 0 && (known || len(by) < maxEnded) {
			by[pid] += n
		}
	}
	keep(s.events, share.Lost)
	keep(s.stacks, share.LostStacks)
}

// Lost returns how many events, and how many stacks, each process has lost so far, by pid: refused
// beyond its share of what all share, or without room.
func (s *Shares) Lost() (events, stacks map[uint32]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events, stacks = maps.Clone(s.events), maps.Clone(s.stacks)
	var cursor ebpf.MapBatchCursor
	pids, list := make([]uint32, 1024), make([]bpf.Share, 1024)
	for {
		n, err := s.kernel.BatchLookup(&cursor, pids, list, nil)
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
				s.defects.Note("a look at shares", err)
			}
			return events, stacks
		}
	}
}

// Text returns a sentence about the processes that lost most, "" if none lost anything.
func (s *Shares) Text() string {
	events, stacks := s.Lost()
	s.mu.Lock()
	defer s.mu.Unlock()
	return text(events, stacks, s.before)
}

func text(events, stacks map[uint32]uint64, before lossSum) string {
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
	if before.processes > 0 {
		list = append(list, fmt.Sprintf("%d processes that ended long ago lost %d, and %d stacks", before.processes, before.events, before.stacks))
	}
	if len(list) == 0 {
		return ""
	}
	return "events that processes sent beyond their share of the kernel half's tables and rings, or without room: " + strings.Join(list, ", ")
}

// ForgetProcesses counts what processes lost that have ended as that of no one process.
func (s *Shares) ForgetProcesses(ended map[uint32]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid := range ended {
		events, stacks := s.events[pid], s.stacks[pid]
		if ended[pid] && events+stacks > 0 {
			s.before.processes++
			s.before.events += events
			s.before.stacks += stacks
			delete(s.events, pid)
			delete(s.stacks, pid)
		}
	}
}

// Forget drops the shares of processes that are gone and that nobody knew.
func (s *Shares) Forget(isKnown func(pid uint32) bool) {
	var gone []uint32
	var pid uint32
	var share bpf.Share
	for i := s.kernel.Iterate(); i.Next(&pid, &share); {
		if !isKnown(pid) && !procfs.Exists(pid) {
			gone = append(gone, pid)
		}
	}
	for _, pid := range gone {
		s.Leave(pid)
	}
}
