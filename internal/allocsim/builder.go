// SPDX-License-Identifier: Apache-2.0

package allocsim

// Builder makes a trace, from events or from another trace that it changes.
type Builder struct {
	trace Trace
	time  uint64
}

// NewBuilder begins a trace that has the device, version, settings and start of another, and its
// blocks, so that blocks of the start keep their numbers. Ops, and what the recorded run answered,
// are empty.
func NewBuilder(of *Trace) *Builder {
	b := &Builder{trace: *of}
	b.trace.Ops = make([]Op, 0, len(of.Ops))
	b.trace.Blocks = append(make([]Block, 0, len(of.Blocks)), of.Blocks...)
	b.trace.Reserved = nil
	return b
}

// At sets the time of the following operations.
func (b *Builder) At(time uint64) { b.time = time }

// New adds a block, and returns its number. Malloc allocates it.
func (b *Builder) New(block Block) uint32 {
	b.trace.Blocks = append(b.trace.Blocks, block)
	return uint32(len(b.trace.Blocks) - 1)
}

// Block returns a block, to be changed.
func (b *Builder) Block(n uint32) *Block { return &b.trace.Blocks[n] }

// Add appends an operation at the time of At.
func (b *Builder) Add(kind Kind, block uint32) {
	b.trace.Ops = append(b.trace.Ops, Op{Time: b.time, Block: block, Kind: kind})
}

// Op appends an operation as it is, with its time, which becomes that of the following ones.
func (b *Builder) Op(op Op) {
	b.time = op.Time
	b.trace.Ops = append(b.trace.Ops, op)
}

// Trace returns what was built. The builder must not be used afterwards.
func (b *Builder) Trace() *Trace { return &b.trace }

// Drop returns a trace without some blocks: they are never allocated.
func (t *Trace) Drop(gone func(block uint32) bool) *Trace {
	b := NewBuilder(t)
	for _, op := range t.Ops {
		if op.ofBlock() && gone(op.Block) {
			continue
		}
		b.Op(op)
	}
	return b.Trace()
}

// Resize returns a trace in which blocks ask for other sizes, in bytes.
func (t *Trace) Resize(size func(block uint32, b Block) uint64) *Trace {
	b := NewBuilder(t)
	for i := range b.trace.Blocks {
		b.trace.Blocks[i].Requested = size(uint32(i), t.Blocks[i])
	}
	b.trace.Ops = append(b.trace.Ops, t.Ops...)
	return b.Trace()
}
