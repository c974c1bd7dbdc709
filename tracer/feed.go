// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// markSegments tells the books which driver allocations PyTorch's allocator made.
func (t *Tracer) markSegments(tx *sequence.Tx) {
	tx.MarkSegments(func(stack uint64) bool { return t.stacks.Passes(stack, callstack.IsTorchAllocator) })
}

// A capture gets the state that otherwise only a snapshot reads every captureInterval, so that it
// can show any moment. With more than maxCaptured tensors their blocks are left out, because
// walking them takes long.
const (
	captureInterval = 10 * time.Second
	maxCaptured     = 200_000
)

// feedCapture reads the state for the capture until ctx ends.
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
