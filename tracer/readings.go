// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/vramprof/vramprof/tracer/torchalloc"
)

// readingBooks is what a panic costs, in words.
const readingBooks = "a look at the books"

// bookFirstEvents books the events in the ring before Ready is called, so that idle processes have
// their baselines by then.
func (t *Tracer) bookFirstEvents() {
	var record ringbuf.Record
	t.events.SetDeadline(time.Now())
	t.drain(&record)
	tx := t.sequencer.Begin()
	defer tx.Done()
	tx.TakeAll()
}

// watchTensors reads the totals of PyTorch's allocators once per second, whatever NVML does.
func (t *Tracer) watchTensors(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.lookAtTensors()
		}
	}
}

func (t *Tracer) lookAtTensors() {
	defer t.defects.Recovered(torchalloc.Reading)
	tx := t.sequencer.Begin()
	defer tx.Done()
	t.tensors.Read(tx)
}
