// SPDX-License-Identifier: Apache-2.0

// Package allocsim simulates PyTorch's caching allocator for CUDA. It replays a trace of a
// program's requests under other settings, on another size of GPU, or changed, and returns the
// memory that the allocator would have reserved and the allocation that would have run out of
// memory.
//
// A Trace has only what the program did. What the allocator did (segments, splits, retries) follows
// from the Settings and the Rules of a version of PyTorch.
package allocsim

// Kind is what an operation of a trace does.
type Kind uint8

const (
	// Malloc allocates a block.
	Malloc Kind = iota
	// Free frees a block that no other stream uses: its memory can be used again at once.
	Free
	// FreeRequested frees a block that other streams use (record_stream): its memory can be used
	// again after FreeCompleted, or when the allocator waits for all streams because it is out of
	// memory.
	FreeRequested
	// FreeCompleted ends the wait of a block that FreeRequested freed.
	FreeCompleted
	// EmptyCache is the program's call of torch.cuda.empty_cache(). Block is not used.
	EmptyCache
	// Step marks the end of a step of a training, after optimizer.step(). Block is not used.
	Step
	// PoolReleased ends the use of a private pool by graphs: empty_cache gives its free memory
	// back. Block is the number of the pool.
	PoolReleased
	// Failed is an allocation that ran out of memory in the recorded run. Block describes it. A
	// replay tries it, and frees the block at once where it succeeds.
	Failed
)

// Op is one operation.
type Op struct {
	Time  uint64 // nanoseconds since some begin; 0 if unknown
	Block uint32 // index in Trace.Blocks
	Kind  Kind
}

// Block is what one allocation asked for, and what the recorded run answered.
type Block struct {
	Requested uint64 // bytes, before rounding
	Address   uint64 // in the recorded run; 0 if unknown
	Stream    uint32 // number of a stream; equal numbers are one stream
	Pool      uint32 // 0: the default pool; others are private pools
	Site      uint32 // of the stack trace, for the maker of the trace; the simulator ignores it
}

func (o Op) ofBlock() bool {
	return o.Kind != EmptyCache && o.Kind != Step && o.Kind != PoolReleased
}

// Reserved is what the recorded run had reserved after an operation.
type Reserved struct {
	Op    int // index in Trace.Ops
	Bytes uint64
}

// Segment is memory that the allocator had from the driver before a trace began.
type Segment struct {
	Address    uint64
	Size       uint64 // bytes: the sum of its parts
	Stream     uint32
	Pool       uint32
	Small      bool // holds blocks of at most 1 MiB
	Expandable bool // a virtual range; its parts may be unmapped
	Parts      []Part
}

// PartState is what a part of a segment is.
type PartState uint8

const (
	PartFree PartState = iota
	PartLive
	PartWaiting  // freed, but used by other streams
	PartUnmapped // address space of an expandable segment without memory
)

// Part is a piece of a segment, in order of addresses.
type Part struct {
	Size  uint64
	Block uint32 // index in Trace.Blocks, for PartLive and PartWaiting
	State PartState
}

// Trace is what a program asked PyTorch's allocator of one device for.
type Trace struct {
	Device   int
	Version  string // of PyTorch, such as "2.6.0"
	Settings Settings
	Total    uint64 // bytes of the GPU's memory; 0 if unknown

	// Start is what the allocator had before Ops[0]. It is empty where the trace begins with the
	// program. Then other settings can be replayed as well.
	Start []Segment
	Ops   []Op
	// Each block is allocated at most once.
	Blocks []Block

	// Reserved is what the recorded run had reserved, at as many operations as are known, in order.
	// It is for Verify; of a changed trace it is empty.
	Reserved []Reserved
}

// Life is when a block is allocated and freed: indices in Trace.Ops, or -1.
type Life struct {
	Malloc, Free, Completed int
}

// Lives returns the life of each block. A block of the start has no Malloc, one that stays until
// the end no Free. Completed equals Free where no other stream used the block.
func (t *Trace) Lives() []Life {
	lives := make([]Life, len(t.Blocks))
	for i := range lives {
		lives[i] = Life{-1, -1, -1}
	}
	for i, op := range t.Ops {
		if !op.ofBlock() || int64(op.Block) >= int64(len(lives)) {
			continue
		}
		l := &lives[op.Block]
		switch op.Kind {
		case Malloc:
			l.Malloc = i
		case Free:
			l.Free, l.Completed = i, i
		case FreeRequested:
			l.Free = i
		case FreeCompleted:
			l.Completed = i
		}
	}
	return lives
}
