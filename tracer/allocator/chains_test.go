// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"encoding/binary"
	"testing"
)

// movingMemory is memory of a process that allocates: its counters grow with each read of the
// object, and the table of active blocks shows nothing, as when its only entry moves from behind
// the read to in front of it.
type movingMemory struct {
	flatMemory
	grown *int
	hide  bool
}

func (m movingMemory) ReadAt(b []byte, a uint64) (int, error) {
	const object, table = fuzzBase + 4096, fuzzBase + 10240
	if a == object {
		*m.grown++
		binary.LittleEndian.PutUint64(m.flatMemory[4096+40+16:], uint64(*m.grown)) // blocks given out
	}
	n, err := m.flatMemory.ReadAt(b, a)
	if end := a + uint64(n); m.hide && a <= table && end > table {
		b[table-a] = 0xff // empty
	}
	return n, err
}

// TestABlockThatTheTableMovedIsFoundByItsNeighbor: without that, a walk lacks it, and the events of
// its window do not have it either.
func TestABlockThatTheTableMovedIsFoundByItsNeighbor(t *testing.T) {
	m := minimal()
	a := New(m, nil)
	if _, err := a.Walk(1); err != nil {
		t.Fatal(err)
	}
	moving := movingMemory{m, new(int), true}
	s, err := New(moving, a.Layout()).Walk(1)
	if err != nil {
		t.Fatal(err)
	}
	d := s.Devices[0]
	if d.Exact || d.Linked != 1 || d.Given == 0 || !d.Bounded {
		t.Errorf("%+v", d)
	}
	if len(s.Blocks) != 2 || s.Blocks[0].State != Active || s.Blocks[0].Size != 1024 || len(s.Segments) != 1 || s.Segments[0].Size != 1536 {
		t.Errorf("blocks %+v in segments %+v", s.Blocks, s.Segments)
	}
	// A block that has been freed, or does not lead back, is none.
	const b = 12288
	for name, at := range map[string]int{"freed": 10 * 8, "of another chain": 12 * 8, "of another pool": 8 * 8} {
		moving.flatMemory = minimal()
		moving.flatMemory[b+at]++
		if name == "freed" {
			moving.flatMemory[b+at] = 0
		}
		if s, err := New(moving, a.Layout()).Walk(1); err != nil || s.Devices[0].Linked != 0 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// TestSegmentsKeepTheirBoundsWhileBlocksChange: while nothing is reserved, a walk that lacks a
// block has the segments of one before.
func TestSegmentsKeepTheirBoundsWhileBlocksChange(t *testing.T) {
	m := movingMemory{minimal(), new(int), false}
	a := New(minimal(), nil)
	if _, err := a.Walk(1); err != nil {
		t.Fatal(err)
	}
	a = New(m, a.Layout())
	if s, err := a.Walk(1); err != nil || s.Devices[0].Exact || !s.Devices[0].Bounded {
		t.Fatalf("%+v, %v", s, err)
	}
	const last, size, reserved = 12544, 6 * 8, 4096 + 40 + 5*96
	m.flatMemory[last+size+1] = 0 // the last block is not whole
	if s, err := a.Walk(1); err != nil || !s.Devices[0].Bounded || len(s.Segments) != 1 || s.Segments[0].Size != 1536 || s.Segments[0].Blocks != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	m.flatMemory[reserved+16]++ // a segment came
	if s, err := a.Walk(1); err != nil || s.Devices[0].Bounded {
		t.Errorf("with another segment: %+v, %v", s, err)
	}
}
