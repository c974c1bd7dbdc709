// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// forked reads which child a script has forked.
func (p *program) forked() (pid uint32) {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if _, scan := fmt.Sscanf(line, "forked %d", &pid); err != nil || scan != nil {
		p.t.Fatalf("%v printed %q, %v", p.Args, line, err)
	}
	return pid
}

// allocatorsOf describes PyTorch's allocator of a process in a snapshot, running or not.
func allocatorsOf(s *ledger.Snapshot, pid uint32) (list []ledger.Tensors) {
	for _, x := range s.Tensors {
		if s.Processes[x.Process].PID == pid {
			list = append(list, x)
		}
	}
	return list
}

// TestAChildThatFreesWhatItInheritedHasNoTensors: its allocator reports the parent's totals, and
// has no memory.
func TestAChildThatFreesWhatItInheritedHasNoTensors(t *testing.T) {
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	m.trace(nil)
	p := m.follow("2.6", nil, "alloc a 30M", "alloc b 40M", "alloc c 1M", "fork a", "wait", "fork b", "free c", "totals", "wait")
	first := p.forked()
	s := m.snapshot()
	if list := allocatorsOf(s, first); len(list) != 0 {
		t.Errorf("the child has %+v", list)
	}
	p.next()
	second := p.forked()
	if err := unix.Kill(int(first), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	totals := p.totals()[0]
	s = m.snapshot()
	for _, child := range []uint32{first, second} {
		if list := allocatorsOf(s, child); len(list) != 0 {
			t.Errorf("child %d has %+v", child, list)
		}
	}
	if x := tensorsOf(t, s, p.pid())[0]; x.LiveBytes != totals.Allocated || x.Allocated != totals.Allocated || x.Older != 0 {
		t.Errorf("the parent has %+v, want %d bytes allocated", x, totals.Allocated)
	}
	checkParts(t, "the parent", s, p.pid())
	checkLosses(t, s)
	p.end()
}

// TestAProcessThatFreesFirstHasItsTensors: one that NVML lists, attached in the middle, has an
// allocator of its own.
func TestAProcessThatFreesFirstHasItsTensors(t *testing.T) {
	m := newMachine(t, 1)
	p := m.tensors("2.6", nil, "alloc a 30M", "alloc b 40M", "mark", "ready", "wait", "free a", "totals", "wait")
	p.ready()
	m.trace(nil)
	p.next()
	totals := p.totals()
	s := m.snapshot()
	checkTensors(t, "after the free", s, p.pid(), totals, false)
	checkParts(t, "after the free", s, p.pid())
	p.end()
}
