// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// A checkpoint has the books as they are after all inputs before it, so a reader that shows one
// moment plays only what follows the newest checkpoint before it. It is made while the session
// runs, where the books are at hand: a reader could keep one only in a second file, which it may
// not be able to write. Its frames are in a row among the others, so a file that was cut off has
// all those before. A Reader that plays all inputs skips them, as earlier versions do.
//
// Captures of an archive have none: they begin with an opening, and are short.
const (
	// Bytes of a file between two checkpoints, at least: half a million events.
	checkpointStep = 4 << 20

	// The least ratio of the bytes between two checkpoints to the bytes of the second. So
	// checkpoints take at most about a tenth of a file, and less of the time to write it, however
	// much lives.
	checkpointShare = 10
)

// Checkpoints tells books what makes them equal to those that the Writer is fed beside, unless it
// would take more than about most bytes. It returns whether it did: see ledger.Ledger.Checkpoint.
type Checkpoints func(to ledger.Books, most int) bool

// checkpointer makes the checkpoints of a Writer, whose mu guards it.
type checkpointer struct {
	source Checkpoints // nil: there are none
	look   bool        // a batch was queued since the last look whether one is due
	after  int64       // bytes in the file after the last checkpoint, or math.MaxInt64 while that is queued
	step   int64       // checkpointStep; less in tests
}

// due reports whether a file that has stored bytes is to get another checkpoint.
func (c *checkpointer) due(stored int64) bool { return c.source != nil && stored-c.after >= c.step }

// take returns the frames of a checkpoint, which the caller queues. It returns false if they would
// be too large.
func (c *checkpointer) take(stored int64) ([]*wire.Inputs, bool) {
	var to pieces
	if !c.source(&to, int((stored-c.after)/checkpointShare)) {
		return nil, false
	}
	c.after = math.MaxInt64 // until it is in the file
	return to.list, true
}

// pieces collects the frames of a checkpoint.
type pieces struct {
	list []*wire.Inputs
	size int // of the last
}

// Apply implements ledger.Books. Checkpoints have no events.
func (p *pieces) Apply(*ledger.Event) {}

// Tell implements ledger.Books.
func (p *pieces) Tell(in ledger.Input) {
	if len(p.list) == 0 || p.size >= batchBytes {
		p.list, p.size = append(p.list, &wire.Inputs{}), 0
	}
	x, last := inputOf(in), p.list[len(p.list)-1]
	last.Input = append(last.Input, x)
	p.size += size(x)
}

// checkpoint is where the frames of a whole checkpoint are.
type checkpoint struct {
	frames []int // in Reader.frames
	time   uint64
	next   int // the frame after it
}

// checkpoints finds the checkpoints of a file. From the first damage or gap on there are none: what
// follows from the inputs lacks something there, and all views must show the same.
type checkpoints struct {
	list []checkpoint
	part checkpoint
	left uint32 // frames of part that follow
}

// take adds the frame that Reader.frames has at index i. All before it is up to time.
func (c *checkpoints) take(f *frame, i int, time uint64) {
	switch {
	case f.kind == stacksFrame:
		return
	case f.kind != checkpointFrame:
		c.part.frames = nil
		return
	case len(c.part.frames) == 0:
		c.part.time = time
	case f.events+1 != c.left:
		c.part.frames = nil
		return
	}
	c.left = f.events
	if c.part.frames = append(c.part.frames, i); c.left == 0 {
		c.part.next = i + 1
		c.list = append(c.list, c.part)
		c.part.frames = nil
	}
}

// before returns the newest checkpoint before a moment, or nil.
func (c *checkpoints) before(time uint64) *checkpoint {
	for i := len(c.list) - 1; i >= 0; i-- {
		if c.list[i].time <= time {
			return &c.list[i]
		}
	}
	return nil
}
