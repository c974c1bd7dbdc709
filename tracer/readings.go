// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"time"

	"github.com/vramprof/vramprof/tracer/torchalloc"
)

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
