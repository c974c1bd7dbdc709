// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/booking"
)

// markSegments tells the books which driver allocations PyTorch's allocator made.
func (t *Tracer) markSegments(turn *booking.Turn) {
	turn.MarkSegments(func(stack uint64) bool { return t.stacks.Passes(stack, callstack.IsTorchAllocator) })
}

// A capture is told every few seconds what otherwise only a snapshot asks for, so that it can show
// any moment. Of so many tensors the blocks are left out: to walk them takes long.
const (
	captureInterval = 10 * time.Second
	maxCaptured     = 200_000
)

// feedCapture does so until ctx ends.
func (t *Tracer) feedCapture(ctx context.Context) {
	if t.config.Capture == nil {
		return
	}
	tick := time.NewTicker(captureInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.readBooks(maxCaptured)
		}
	}
}
