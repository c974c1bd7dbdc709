// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"github.com/vramprof/vramprof/tracer/ledger/codec"
	"github.com/vramprof/vramprof/tracer/ledger/growth"
)

// carrier is the codec of a piece, with the books that it is of.
type carrier struct {
	*codec.Codec
	l        *Ledger
	renumber *opener // of a writer
}

// counts carries figures of allocations.
func (c *carrier) counts(list ...*count) {
	for _, x := range list {
		codec.Amount(c.Codec, &x.objects, maxSum)
		codec.Amount(c.Codec, &x.bytes, maxSum)
	}
}

// kind carries the kind of memory or of a driver object.
func (c *carrier) kind(x *Kind) {
	codec.Most(c.Codec, x, lastKind)
	c.Check(*x != aliased)
}

// device carries the device of allocations or blocks.
func (c *carrier) device(x *int32) {
	codec.Num(c.Codec, x)
	c.Check(*x >= CPUDevice && *x < maxDevices || *x == allDevices)
}

// opener tells the pieces of an opening.
type opener struct {
	carrier
	to        Books
	whole     bool // of a checkpoint
	piece     uint32
	kind      carriedKind             // of the current piece
	processes []*process              // those that are told
	member    map[*member]uint32      // their new numbers; nil: none
	site      map[*site]uint32        // new numbers
	pool      map[*pool]uint32        // new numbers, from 1 on
	groups    map[growth.Group]uint32 // new number of their first site plus 1
}

// opening is the state of a ledger that takes the pieces of an opening.
type opening struct {
	pieces  uint32 // taken so far
	whole   bool   // all were taken
	rounded bool   // it has carryRounding

	// Until the end of the opening.
	endings uint64              // of the process with the most
	sites   []carriedSite       // by number
	pools   []carriedPool       // by number - 1
	warned  map[string]uint32   // number of the process that a warning is of
	figures map[*process]uint64 // sum of the figures of its sites that must not overflow
}

// carriedSite is a site of a process.
type carriedSite struct {
	process *process
	site    *site
}

// carriedPool is a pool of a process by its number.
type carriedPool struct {
	process *process
	number  uint32
}
