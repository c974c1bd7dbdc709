// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/symbolize"
)

// resultOutOfMemory is CUDA_ERROR_OUT_OF_MEMORY and cudaErrorMemoryAllocation.
const resultOutOfMemory = 2

// stackDelay is how long the stack of an event may be on its way.
const stackDelay = 100 * time.Millisecond

// ooms hands what the event loop sees to Config.OOM.
type ooms struct {
	queue   chan OOM
	dropped atomic.Uint64
}

// outOfMemory never blocks; t.mu is held.
func (t *Tracer) outOfMemory(p *process, o OOM) {
	if t.config.OOM == nil {
		return
	}
	o.Comm = symbolize.Clean(commOf(p.pid))
	select {
	case t.ooms.queue <- o:
	default:
		t.ooms.dropped.Add(1)
	}
}

// reportOOMs calls Config.OOM until ctx ends, and then for what is still in the queue. Errors
// that PyTorch's allocator gets from CUDA are not the end of it: it tries again.
func (t *Tracer) reportOOMs(ctx context.Context) {
	for {
		var o OOM
		select {
		case o = <-t.ooms.queue:
		default:
			select {
			case o = <-t.ooms.queue:
			case <-ctx.Done():
				return
			}
		}
		if wait := stackDelay - time.Duration(now()-o.Time); wait > 0 && wait <= stackDelay {
			time.Sleep(wait)
		}
		if o.API == "torch" || !t.stacks.passes(o.Stack, torchCUDA) {
			t.config.OOM(o)
		}
	}
}
