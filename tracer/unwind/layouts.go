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
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/process"
)

// The kernel half finds the table for an address in a tree of address prefixes, which all processes
// share. The entries of one process form its layout. Processes with equal layouts, such as forked
// ones, share one, and a child has its parent's layout from the fork on. A layout is immutable: a
// process whose mappings change gets another one.

// layouts holds all layouts. Unwinder.mu is held while its methods run, except where they state
// otherwise.
type layouts struct {
	tree
	seed         maphash.Seed
	room         room
	next         uint32
	bySum        map[uint64][]*layout
	byHash       map[uint64]*layout
	waiting      map[*layout]bool // for space in the kernel
	settled      []uint32         // pids whose layouts no longer wait, for the next Forget
	waitingSpans int
	draft        *draft // of the process being loaded

	mu       sync.Mutex // guards the fields below, and layout.members; held briefly
	byNumber map[uint32]*layout
	of       map[uint32]*layout // by pid
	refusals map[*layout]string // why layouts are not in the kernel
}

// draft is a layout under construction, while the profiler reports changes.
type draft struct {
	spans    map[lpm.Prefix]span
	python   []byte
	changed  bool
	mappings []process.RawMapping
	over     int // prefixes beyond the limit of one process
}

func newLayouts(maps map[string]*ebpf.Map) layouts {
	return layouts{
		tree: tree{maps["pid_page_to_mapping_info"], maps["py_procs"]}, seed: maphash.MakeSeed(),
		room: newRoom(), bySum: map[uint64][]*layout{}, byHash: map[uint64]*layout{},
		waiting: map[*layout]bool{}, byNumber: map[uint32]*layout{}, of: map[uint32]*layout{}, refusals: map[*layout]string{},
	}
}

// layoutOf returns a process's layout, and whether the profiler knows the process. It takes only
// l.mu.
func (l *layouts) layoutOf(pid uint32) (at *layout, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at = l.of[pid]
	return at, at != nil && at.members[pid]
}

// spanAt returns the part of a file that a process maps at an address. It takes only l.mu.
func (l *layouts) spanAt(pid uint32, address uint64) (s span, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.of[pid]
	if at == nil {
		return span{}, false
	}
	for length := uint32(64); length > 0; length-- {
		key := address &^ (1<<(64-length) - 1)
		if s, ok := at.spans[lpm.Prefix{Key: key, Length: length}]; ok {
			return s, true
		}
	}
	return span{}, false
}

// files returns the files of all layouts.
func (l *layouts) files() map[host.FileID]bool {
	mapped := map[host.FileID]bool{}
	for _, list := range l.bySum {
		for _, at := range list {
			for _, s := range at.spans {
				mapped[host.FileID(s.file)] = true
			}
		}
	}
	return mapped
}

// join assigns a process a layout.
func (l *layouts) join(pid uint32, to *layout, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.of[pid]; before != nil && before != to {
		delete(before.members, pid)
	}
	l.of[pid] = to
	to.members[pid] = to.members[pid] || known
}

// begin starts the draft of a process.
func (l *layouts) begin(pid uint32) {
	l.draft = &draft{spans: map[lpm.Prefix]span{}}
	if at, known := l.layoutOf(pid); known {
		l.draft.spans, l.draft.python = maps.Clone(at.spans), at.python
	}
}

var errFull = errors.New("the process has too many mappings")

// put adds one prefix to the draft. It does nothing without a draft, as when processes have ended.
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

// drop removes prefixes from the draft, and returns how many it had.
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

// commit ends the draft and assigns the process its layout, which it returns. A process whose
// mappings cannot be read, because it or its first thread has ended, keeps its layout, which may be
// nil.
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

// maxWaitingSpans limits the total size of layouts that wait for space.
const maxWaitingSpans = maxPrefixes

// bring writes a layout into the kernel, or lets it wait for space.
func (l *layouts) bring(at *layout) {
	err := l.room.take(at.user, len(at.spans), at.python != nil)
	if err == nil {
		at.number = l.number()
		if err = l.write(at); err != nil {
			l.erase(at)
			l.room.give(at.user, len(at.spans), at.python != nil)
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
	case !l.waiting[at]: // its processes never get stacks
		at.spans = map[lpm.Prefix]span{}
		l.refusals[at] = err.Error()
	}
}

// number returns the next number that no layout has. They begin again after 2^32: the kernel half
// never has a number that no layout has, see sweep.
func (l *layouts) number() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.next++; l.next == 0 || l.byNumber[l.next] != nil; l.next++ {
	}
	return l.next
}

// leaveQueue removes a layout from those that wait.
func (l *layouts) leaveQueue(at *layout) {
	if l.waiting[at] {
		delete(l.waiting, at)
		l.waitingSpans -= len(at.spans)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refusals, at)
}

// settle writes layouts that wait for space into the kernel, the smallest first.
func (l *layouts) settle() {
	for _, at := range slices.SortedFunc(maps.Keys(l.waiting), func(a, b *layout) int { return len(a.spans) - len(b.spans) }) {
		if l.bring(at); at.number == 0 {
			return
		}
		l.settled = slices.AppendSeq(l.settled, maps.Keys(at.members))
	}
}

// setHash makes a layout known under the kernel's hash of the mappings.
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

// sumOf returns a checksum of a draft that does not depend on the order of prefixes.
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

// forget removes processes that have ended.
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

// sweep removes unused layouts. inKernel has the numbers in the kernel half's processes by pid:
// these include children that inherited a layout, and processes that are about to get another one.
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
			l.room.give(at.user, len(at.spans), at.python != nil)
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

// adopt notes that a process has the layout with a number; false if no layout has it. It takes only
// l.mu.
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

// heirs returns one living process for each layout whose processes that the profiler knows have all
// ended. The profiler keeps the tables of a file only while it knows a process that maps the file.
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

// refused describes at most most layouts that are not in the kernel: their processes, and the
// reason. It takes only l.mu.
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
