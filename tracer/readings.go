// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"fmt"
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

// measurePrice measures what a report of PyTorch costs on this machine. Without it, the session does not
// know its own cost.
func (t *Tracer) measurePrice() {
	if t.config.NoTensors {
		return
	}
	price, err := t.prober.ReportPrice()
	if err != nil {
		t.config.Note(err.Error())
		return
	}
	t.meter.SetPrice(price)
	t.config.Note(fmt.Sprintf("a report of a tensor takes %v here", t.meter.Price()))
}
