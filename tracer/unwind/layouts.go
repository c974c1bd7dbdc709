// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/process"
)

// The kernel finds out by a tree of address prefixes which file's table is for an address. All processes share that tree. What is
// in it for one process is a layout: processes with equal ones, as those that were forked have, share it, and a child has its
// parent's from the fork on. A layout never changes: a process whose mappings change gets another.

// span is what the tree has for one prefix of addresses.
type span struct{ file, bias uint64 }

// marker is the prefix under which the profiler notes that a process is known, and how to look at its mappings.
var marker = lpm.Prefix{Key: 0, Length: 64}

// layout is where a process has mapped which file as code, and where its Python is. Nobody changes one.
type layout struct {
	number uint32 // in the kernel's maps; 0: it is not there
	hash   uint64 // by which the kernel tells it; 0: unknown
	sum    uint64 // of what it has
	spans  map[lpm.Prefix]span
	python []byte // a support.PyProcInfo; nil without Python
	user   uint32
	cut    bool // a part of the process's mappings is not in it

	mappings []process.RawMapping // of the first process, as the profiler was told of them
	members  map[uint32]bool      // pids; true: the profiler knows the process
}

// layouts are those that the kernel has. Its methods are called while Unwinder.mu is held, but for those that say so.
type layouts struct {
	prefixes, pythons *ebpf.Map
	seed              maphash.Seed
	room              room
	next              uint32
	bySum             map[uint64][]*layout
	byHash            map[uint64]*layout
	waiting           map[*layout]bool // for room in the kernel
	settled           []uint32         // pids of layouts that have waited, and that nobody has been told of
	waitingSpans      int
	draft             *draft // of the process that is being loaded

	mu       sync.Mutex // guards what follows, never for long
	byNumber map[uint32]*layout
	of       map[uint32]*layout // by pid
	refusals map[*layout]string // why they are not in the kernel
}

// draft is a layout while the profiler tells what has changed.
type draft struct {
	spans    map[lpm.Prefix]span
	python   []byte
	changed  bool
	mappings []process.RawMapping
	over     int // prefixes beyond what one process may have
}

func newLayouts(maps map[string]*ebpf.Map) layouts {
	return layouts{
		prefixes: maps["pid_page_to_mapping_info"], pythons: maps["py_procs"], seed: maphash.MakeSeed(),
		room: newRoom(), bySum: map[uint64][]*layout{}, byHash: map[uint64]*layout{},
		waiting: map[*layout]bool{}, byNumber: map[uint32]*layout{}, of: map[uint32]*layout{}, refusals: map[*layout]string{},
	}
}

// layoutOf returns what a process has, and whether the profiler knows it. It takes no other lock than its own.
func (l *layouts) layoutOf(pid uint32) (at *layout, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at = l.of[pid]
	return at, at != nil && at.members[pid]
}

// join gives a process a layout.
func (l *layouts) join(pid uint32, to *layout, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.of[pid]; before != nil && before != to {
		delete(before.members, pid)
	}
	l.of[pid] = to
	to.members[pid] = to.members[pid] || known
}

// begin starts to note what the profiler tells of a process.
func (l *layouts) begin(pid uint32) {
	l.draft = &draft{spans: map[lpm.Prefix]span{}}
	if at, known := l.layoutOf(pid); known {
		l.draft.spans, l.draft.python = maps.Clone(at.spans), at.python
	}
}

var errFull = errors.New("the process has too many mappings")

// put notes one prefix; outside of begin and commit, as when processes have ended, nothing.
func (l *layouts) put(prefix lpm.Prefix, s span) error {
	d := l.draft
	if d == nil {
		return nil
	}
	if before, ok := d.spans[prefix]; ok && before == s {
		return nil
	}
	if len(d.spans) >= maxPrefixesOfProcess {
		d.over++
		return errFull
	}
	d.spans[prefix] = s
	d.changed = true
	return nil
}

func (l *layouts) drop(prefixes []lpm.Prefix) (n uint64) {
	if l.draft == nil {
		return 0
	}
	for _, p := range prefixes {
		if _, ok := l.draft.spans[p]; ok {
			delete(l.draft.spans, p)
			l.draft.changed = true
			n++
		}
	}
	return n
}

func (l *layouts) setPython(data []byte) {
	if l.draft != nil {
		l.draft.python, l.draft.changed = data, true
	}
}

// commit ends what begin has started, and gives the process the layout that it has now. One whose mappings cannot be read, as it is
// gone or its first thread has ended, keeps what it had; nil if that is nothing.
func (l *layouts) commit(pid, user uint32, hash uint64) *layout {
	d := l.draft
	l.draft = nil
	at, known := l.layoutOf(pid)
	if known && !d.changed {
		return at
	}
	if _, marked := d.spans[marker]; len(d.spans) == 0 || marked && len(d.spans) == 1 {
		return at
	}
	sum := l.sumOf(d)
	for _, other := range l.bySum[sum] {
		if maps.Equal(other.spans, d.spans) && slices.Equal(other.python, d.python) {
			l.setHash(other, hash)
			l.join(pid, other, true)
			return other
		}
	}
	next := &layout{sum: sum, spans: d.spans, python: d.python, user: user, cut: d.over > 0, mappings: d.mappings, members: map[uint32]bool{}}
	l.bySum[sum] = append(l.bySum[sum], next)
	l.setHash(next, hash)
	l.join(pid, next, true)
	l.bring(next)
	return next
}

// maxWaitingSpans bounds what is kept of processes for whose mappings there is no room.
const maxWaitingSpans = maxPrefixes

// bring writes a layout into the kernel, or has it wait for room.
func (l *layouts) bring(at *layout) {
	err := l.room.take(at.user, len(at.spans))
	if err == nil {
		l.next++
		at.number = l.next
		if err = l.write(at); err != nil {
			l.erase(at)
			l.room.give(at.user, len(at.spans))
			at.number = 0
		}
	}
	if err == nil {
		l.leaveQueue(at)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.byNumber[at.number] = at
	case !l.waiting[at] && l.waitingSpans+len(at.spans) <= maxWaitingSpans:
		l.waiting[at] = true
		l.waitingSpans += len(at.spans)
		l.refusals[at] = err.Error()
	case !l.waiting[at]: // its processes have no stacks to their end
		at.spans = map[lpm.Prefix]span{}
		l.refusals[at] = err.Error()
	}
}

func (l *layouts) leaveQueue(at *layout) {
	if l.waiting[at] {
		delete(l.waiting, at)
		l.waitingSpans -= len(at.spans)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refusals, at)
}

// settle brings layouts that wait for room into the kernel, the smallest first.
func (l *layouts) settle() {
	for _, at := range slices.SortedFunc(maps.Keys(l.waiting), func(a, b *layout) int { return len(a.spans) - len(b.spans) }) {
		if l.bring(at); at.number == 0 {
			return
		}
		l.settled = slices.AppendSeq(l.settled, maps.Keys(at.members))
	}
}

// setHash lets a layout be found by what the kernel says of a process.
func (l *layouts) setHash(at *layout, hash uint64) {
	if hash == 0 || at.cut {
		return
	}
	if at.hash != 0 && l.byHash[at.hash] == at {
		delete(l.byHash, at.hash)
	}
	at.hash = hash
	l.byHash[hash] = at
}

// sumOf is the same for the same contents in any order.
func (l *layouts) sumOf(d *draft) (sum uint64) {
	type entry struct {
		prefix lpm.Prefix
		span   span
	}
	for p, s := range d.spans {
		sum += maphash.Comparable(l.seed, entry{p, s})
	}
	return sum + maphash.Bytes(l.seed, d.python)
}

// forget ends the membership of processes that are gone.
func (l *layouts) forget(gone func(pid uint32) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pid, at := range l.of {
		if gone(pid) {
			delete(at.members, pid)
			delete(l.of, pid)
		}
	}
}

// sweep erases the layouts that nobody has. inKernel gives by pid the numbers that the kernel half has: a parent's of children
// that nobody has asked for, and the former one of a process that has another since a moment.
func (l *layouts) sweep(inKernel map[uint32]uint32) {
	used := map[uint32]bool{}
	for pid, number := range inKernel {
		l.adopt(pid, number)
		used[number] = true
	}
	var dead []*layout
	l.mu.Lock()
	for _, list := range l.bySum {
		for _, at := range list {
			if len(at.members) == 0 && !used[at.number] {
				delete(l.byNumber, at.number)
				dead = append(dead, at)
			}
		}
	}
	l.mu.Unlock()
	for _, at := range dead {
		if at.number != 0 {
			l.erase(at)
			l.room.give(at.user, len(at.spans))
		}
		l.leaveQueue(at)
		l.bySum[at.sum] = slices.DeleteFunc(l.bySum[at.sum], func(o *layout) bool { return o == at })
		if len(l.bySum[at.sum]) == 0 {
			delete(l.bySum, at.sum)
		}
		if l.byHash[at.hash] == at {
			delete(l.byHash, at.hash)
		}
	}
}

// adopt notes that a process has a layout, by its number; false if there is none of that number. It takes no other lock than its own.
func (l *layouts) adopt(pid, number uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.byNumber[number]
	if at == nil {
		return false
	}
	if l.of[pid] == nil {
		l.of[pid] = at
		at.members[pid] = false
	}
	return true
}

// heirs lists the layouts of which the profiler will know no process when those that are gone are forgotten, with one
// process of each that is not: it keeps the tables of files for as long as it knows who maps them.
func (l *layouts) heirs(gone func(pid uint32) bool) map[uint32]*layout {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := map[uint32]*layout{}
	for _, at := range l.byNumber {
		var heir uint32
		for pid, known := range at.members {
			if gone(pid) {
				continue
			}
			if heir = pid; known {
				heir = 0
				break
			}
		}
		if heir != 0 {
			list[heir] = at
		}
	}
	return list
}

// refused says of at most so many layouts why they are not in the kernel, and of which processes they are. It takes no other lock than
// its own.
func (l *layouts) refused(most int) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, why := range l.refusals {
		if len(list) >= most || len(at.members) == 0 {
			continue
		}
		pids := slices.Sorted(maps.Keys(at.members))
		text := fmt.Sprintf("stacks of process %d", pids[0])
		if n := len(pids) - 1; n > 0 {
			text += fmt.Sprintf(" and of %d that were forked with it", n)
		}
		list = append(list, text+" are missing: "+why)
	}
	return list
}
