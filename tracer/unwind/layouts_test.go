// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"math/bits"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"
)

// newTree creates layouts with a tree in the kernel.
func newTree(t *testing.T, entries int) *layouts {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("BPF maps need root")
	}
	tree, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.LPMTrie, KeySize: 16, ValueSize: 16, MaxEntries: uint32(entries), Flags: unix.BPF_F_NO_PREALLOC,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	l := newLayouts(map[string]*ebpf.Map{"pid_page_to_mapping_info": tree})
	l.room.most, l.room.ofUser, l.room.reserved, l.room.small = entries, entries/2, entries/4, entries/16
	return &l
}

// load gives a process n prefixes of a file, and no other prefixes.
func (l *layouts) load(pid, user uint32, file uint64, n int) *layout {
	l.begin(pid)
	clear(l.draft.spans)
	for i := range n {
		_ = l.put(lpm.Prefix{Key: file<<32 + uint64(i)<<12, Length: 52}, span{file: file, bias: file})
	}
	return l.commit(pid, user, 0)
}

// kernelFileAt returns the file that the kernel finds at an address.
func (l *layouts) kernelFileAt(t *testing.T, number uint32, address uint64) uint64 {
	t.Helper()
	key := support.PIDPage{PrefixLen: support.BitWidthPID + 64, Pid: bits.ReverseBytes32(number), Page: bits.ReverseBytes64(address)}
	var info support.PIDPageMappingInfo
	if err := l.prefixes.Lookup(&key, &info); err != nil {
		return 0
	}
	return info.File_id
}

func (l *layouts) entries(t *testing.T) (n int) {
	t.Helper()
	var key support.PIDPage
	var info support.PIDPageMappingInfo
	i := l.prefixes.Iterate()
	for i.Next(&key, &info) {
		n++
	}
	return n
}

// end removes ended processes that the kernel half no longer has.
func (l *layouts) end(gone func(uint32) bool) {
	l.forget(gone)
	l.sweep(nil)
}

func alive(uint32) bool { return false }

func allBut(living ...uint32) func(uint32) bool {
	return func(pid uint32) bool { return !slices.Contains(living, pid) }
}

func TestProcessesWithEqualMappingsShareThem(t *testing.T) {
	l := newTree(t, 1024)
	first, second := l.load(1, 0, 7, 20), l.load(2, 0, 7, 20)
	other := l.load(3, 0, 8, 20)
	if first != second || first == other || l.entries(t) != 40 || l.room.total != 40 {
		t.Errorf("layouts %d, %d and %d with %d entries", first.number, second.number, other.number, l.entries(t))
	}
	if got := l.kernelFileAt(t, first.number, 7<<32+5<<12+3); got != 7 {
		t.Errorf("at an address of file 7 the kernel finds file %d", got)
	}
	if l.end(allBut(2, 3)); l.entries(t) != 40 {
		t.Errorf("when one of two is gone there are %d entries", l.entries(t))
	}
	if l.end(allBut(3)); l.entries(t) != 20 || l.room.total != 20 || l.kernelFileAt(t, first.number, 7<<32) != 0 {
		t.Errorf("when both are gone there are %d entries", l.entries(t))
	}
}

// A child may have the layout that its parent had before it loaded another library, so that layout
// must not change.
func TestAProcessThatLoadsALibraryGetsAnotherLayout(t *testing.T) {
	l := newTree(t, 1024)
	before := l.load(1, 0, 7, 20)
	if !l.adopt(2, before.number) {
		t.Fatal("the child cannot have its parent's layout")
	}
	l.begin(1)
	_ = l.put(lpm.Prefix{Key: 9 << 32, Length: 52}, span{9, 9})
	after := l.commit(1, 0, 0)
	if after == before || l.kernelFileAt(t, after.number, 9<<32) != 9 || l.kernelFileAt(t, after.number, 7<<32) != 7 || l.kernelFileAt(t, before.number, 9<<32) != 0 {
		t.Errorf("layouts %+v, then %+v", before, after)
	}
	if at, _ := l.layoutOf(2); at != before {
		t.Error("the child's layout has changed")
	}
	l.begin(1)
	l.drop([]lpm.Prefix{{Key: 9 << 32, Length: 52}})
	if again := l.commit(1, 0, 0); again != before {
		t.Error("without the library it does not have the layout that it had")
	}
}

// A process that loads libraries leaves an old layout behind with each. Old layouts are removed
// when the tree is full, unless the kernel half uses them.
func TestUnusedLayoutsGiveUpTheirSpace(t *testing.T) {
	l := newTree(t, 1024)
	l.room.ofUser, l.room.reserved = 1024, 0
	first := l.load(1, 0, 1, 400)
	second := l.load(1, 0, 2, 400)
	third := l.load(1, 0, 3, 400)
	if third.number != 0 {
		t.Fatal("there is room for three")
	}
	l.sweep(map[uint32]uint32{1: second.number, 7: first.number}) // process 7 is unknown
	if l.settle(); third.number != 0 || l.entries(t) != 800 {
		t.Errorf("a layout that the kernel half has is gone: %d entries", l.entries(t))
	}
	l.forget(allBut(1))
	l.sweep(map[uint32]uint32{1: second.number})
	if l.settle(); third.number == 0 || l.kernelFileAt(t, second.number, 2<<32) != 2 || l.entries(t) != 800 {
		t.Errorf("number %d, %d entries", third.number, l.entries(t))
	}
}

// One user's processes get at most half of the tree, and the last part is for small layouts only.
func TestAFloodOfMappingsLeavesSpaceForOthers(t *testing.T) {
	l := newTree(t, 1024)
	for pid := range uint32(20) {
		l.load(100+pid, 1000, uint64(100+pid), 60)
	}
	if n := l.entries(t); n > 512 || n < 450 {
		t.Errorf("the flood has %d entries of 1,024", n)
	}
	list := l.refused(16)
	if len(list) != 12 || !strings.Contains(list[0], "are missing: the mappings of user 1000's processes need 480 of the 512 entries that one user may have, and its mappings need 60 more") {
		t.Errorf("refused is %q", list)
	}
	l.load(1, 0, 1, 280) // up to the part for small layouts
	if big := l.load(2, 0, 2, 65); big.number != 0 {
		t.Error("a large layout takes entries reserved for small ones")
	}
	honest := l.load(3, 0, 3, 60)
	if honest.number == 0 || l.kernelFileAt(t, honest.number, 3<<32+59<<12) != 3 {
		t.Errorf("an honest process has no room beside a flood: %v", l.refused(16))
	}
}

func TestRefusedLayoutsAreLoadedWhenOthersEnd(t *testing.T) {
	l := newTree(t, 1024)
	l.load(1, 1, 1, 350)
	l.load(2, 2, 2, 350)
	late := l.load(3, 3, 3, 300)
	l.join(4, late, false) // forked later
	if late.number != 0 || len(l.refused(16)) != 1 || !strings.HasPrefix(l.refused(16)[0], "stacks of process 3 and of 1 that were forked with it are missing") {
		t.Fatalf("number %d, refused %q", late.number, l.refused(16))
	}
	if l.settle(); len(l.settled) != 0 {
		t.Fatal("it has room before anybody ended")
	}
	l.end(allBut(2, 3, 4))
	l.settle()
	if slices.Sort(l.settled); !slices.Equal(l.settled, []uint32{3, 4}) || late.number == 0 || l.kernelFileAt(t, late.number, 3<<32) != 3 || len(l.refused(16)) != 0 || l.waitingSpans != 0 {
		t.Errorf("settled %v, number %d, refused %q", l.settled, late.number, l.refused(16))
	}
}

// The kernel may have no memory for an entry although the count permits it.
func TestATreeThatIsFullRefuses(t *testing.T) {
	l := newTree(t, 1024)
	l.room.most, l.room.ofUser, l.room.reserved = 4096, 4096, 0
	l.load(1, 0, 1, 1000)
	at := l.load(2, 0, 2, 100)
	if at.number != 0 || l.entries(t) != 1000 || l.room.total != 1000 {
		t.Errorf("number %d, %d entries, %d counted", at.number, l.entries(t), l.room.total)
	}
}

func TestMappingsOfAProcessAreLimited(t *testing.T) {
	l := newTree(t, 1<<20)
	l.room = newRoom()
	l.begin(1)
	for i := range maxPrefixesOfProcess + 10 {
		_ = l.put(lpm.Prefix{Key: uint64(i) << 12, Length: 52}, span{1, 1})
	}
	over := l.draft.over
	at := l.commit(1, 0, 5)
	if over != 10 || len(at.spans) != maxPrefixesOfProcess || at.number == 0 || l.byHash[5] != nil {
		t.Errorf("%d over, %d kept, number %d", over, len(at.spans), at.number)
	}
}

// /proc/PID/maps is empty if the first thread has ended, while other threads still allocate.
func TestAProcessWhoseMappingsCannotBeReadKeepsItsLayout(t *testing.T) {
	l := newTree(t, 1024)
	at := l.load(1, 0, 7, 20)
	l.join(2, at, false) // forked, and not loaded
	l.begin(2)
	_ = l.put(marker, span{})
	if got := l.commit(2, 0, 0); got != at || l.entries(t) != 20 {
		t.Errorf("the layout is %+v, with %d entries", got, l.entries(t))
	}
	l.begin(3)
	_ = l.put(marker, span{})
	if got := l.commit(3, 0, 0); got != nil {
		t.Errorf("of a process that nobody knows it is %+v", got)
	}
}

// An heir keeps the tables of files when the process for which they were loaded ends before its
// children.
func TestChildrenInheritWhatTheProfilerKnows(t *testing.T) {
	l := newTree(t, 1024)
	at := l.load(1, 0, 7, 20)
	l.adopt(2, at.number)
	if list := l.heirs(alive); len(list) != 0 {
		t.Errorf("heirs of a living process: %v", list)
	}
	if list := l.heirs(allBut(2)); len(list) != 1 || list[2] != at {
		t.Errorf("the heirs are %v", list)
	}
}

// A user with more processes that run a Python than there are places leaves some to others.
func TestPythonsAreSharedByUser(t *testing.T) {
	r := newRoom()
	n := 0
	for r.take(1000, 2, true) == nil {
		n++
	}
	if n != maxPythons/2 {
		t.Errorf("one user has %d of %d", n, maxPythons)
	}
	if err := r.take(1000, 2, false); err != nil {
		t.Errorf("a process without one has no room: %v", err)
	}
	if err := r.take(1001, 2, true); err != nil {
		t.Error(err)
	}
	r.give(1001, 2, true)
	for range n {
		r.give(1000, 2, true)
	}
	if r.give(1000, 2, false); r.total != 0 || r.pythons.Used() != 0 || len(r.pythonsBy)+len(r.by) != 0 {
		t.Errorf("left are %+v", r)
	}
}
