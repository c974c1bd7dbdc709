// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"maps"

	"github.com/vramprof/vramprof/internal/allocsim"
)

// edit collects changes of a trace by the index of the operation before which they come.
type edit struct {
	*Program
	early  map[int][]uint32      // frees these blocks, last first
	insert map[int][]allocsim.Op // then does this
	moved  map[uint32]bool       // blocks whose own frees are left out
	rename map[uint32]uint32     // frees another block instead
	blocks []allocsim.Block      // all blocks, and new ones
}

func (p *Program) edit() *edit {
	own := *p // what recomputes adds sites to this change only
	own.sites = maps.Clone(p.sites)
	return &edit{
		Program: &own, early: map[int][]uint32{}, insert: map[int][]allocsim.Op{}, moved: map[uint32]bool{}, rename: map[uint32]uint32{},
		blocks: append(make([]allocsim.Block, 0, len(p.Trace.Blocks)), p.Trace.Blocks...),
	}
}

// free frees a block before an operation instead of where it was freed.
func (e *edit) free(block uint32, before int) {
	e.moved[block] = true
	e.early[before] = append(e.early[before], block)
}

// replace lets a block that the backward pass brings back before an operation take the place of
// another one that the program freed.
func (e *edit) replace(block, by uint32, from int) {
	if at := applied(e.Program, e.until(block)); at > from && at < e.until(block) {
		e.moved[block] = true
		e.early[at] = append(e.early[at], by)
		return
	}
	e.rename[block] = by
}

// recomputed marks sites of what a backward pass computes again. Sites are numbers of stack traces,
// which captures count from 1.
const recomputed = 1 << 31

// again returns a new block that is as another one, allocated in a backward pass or where the other
// one was.
func (e *edit) again(block uint32, backward bool) uint32 {
	b := e.blocks[block]
	b.Address = 0
	if backward && b.Site&recomputed == 0 {
		copied := *e.sites[b.Site]
		copied.backward = true
		b.Site |= recomputed
		e.sites[b.Site] = &copied
	}
	e.blocks = append(e.blocks, b)
	return uint32(len(e.blocks) - 1)
}

// done returns the changed program.
func (e *edit) done() *Program {
	b := allocsim.NewBuilder(e.Trace)
	for i := len(e.Trace.Blocks); i < len(e.blocks); i++ {
		b.New(e.blocks[i])
	}
	at := func(i int) {
		for n := len(e.early[i]) - 1; n >= 0; n-- {
			b.Add(allocsim.Free, e.early[i][n])
		}
		for _, op := range e.insert[i] {
			b.Add(op.Kind, op.Block)
		}
	}
	for i, op := range e.Trace.Ops {
		b.At(op.Time)
		at(i)
		if isFree(op.Kind) {
			if e.moved[op.Block] {
				continue
			}
			if other, ok := e.rename[op.Block]; ok {
				if op.Kind != allocsim.FreeCompleted {
					b.Add(allocsim.Free, other)
				}
				continue
			}
		}
		b.Op(op)
	}
	at(len(e.Trace.Ops))
	return e.with(b.Trace())
}

func isFree(k allocsim.Kind) bool {
	return k == allocsim.Free || k == allocsim.FreeRequested || k == allocsim.FreeCompleted
}

// resize returns the program with other sizes: the bytes that each block asks for, 0 to leave it
// out.
func (p *Program) resize(size func(block uint32) uint64) *Program {
	sizes := make([]uint64, len(p.Trace.Blocks))
	gone := false
	for i := range sizes {
		if sizes[i] = size(uint32(i)); sizes[i] == 0 && p.size(uint32(i)) != 0 {
			gone = true
		}
	}
	t := p.Trace.Resize(func(n uint32, b allocsim.Block) uint64 { return sizes[n] })
	if gone {
		t = t.Drop(func(n uint32) bool { return sizes[n] == 0 && p.size(n) != 0 })
	}
	return p.with(t)
}
