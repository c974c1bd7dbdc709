// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"fmt"
	"time"

	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/pauses"
	"github.com/vramprof/vramprof/tracer/torchalloc"
)

// watchTensors reads the totals of PyTorch's allocators once per second, whatever NVML does.
func (t *Tracer) watchTensors(ctx context.Context) {
	clock.Every(ctx, time.Second, t.lookAtTensors)
}

func (t *Tracer) lookAtTensors() {
	defer t.defects.Recovered(torchalloc.Reading)
	tx := t.sequencer.Begin()
	defer tx.Done()
	t.tensors.Read(tx)
}

// measurePrice measures what a report of PyTorch costs on this machine. Without it, the session
// does not know its own cost.
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

// keepBudget detaches the probe on PyTorch's reports for as long as Config.Budget demands, and
// attaches it again, until ctx ends.
func (t *Tracer) keepBudget(ctx context.Context) {
	if t.config.Budget <= 0 || t.config.NoTensors {
		return
	}
	if t.meter.Price() == 0 {
		t.sequencer.Warn(0, "the budget of tracing is not kept: what a report of a tensor takes could not be measured")
		return
	}
	t.meter.SetBudget(t.config.Budget)
	t.pauses(t.config.Budget).Run(ctx)
}

// pauses returns what keeps a budget.
func (t *Tracer) pauses(share float64) *pauses.Keeper {
	return pauses.New(pauses.Options{
		Budget: share, Meter: &t.meter, Probe: t.prober.Reports(), Allocators: t.tensors, Sequencer: t.sequencer, Defects: &t.defects,
		Read: t.lookAtTensors, Patience: t.config.patience,
	})
}
