// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/vramprof/vramprof/tracer/budget"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/sequence"
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

// keepBudget detaches the probe on PyTorch's reports for as long as Config.Budget demands, and attaches it again,
// until ctx ends.
func (t *Tracer) keepBudget(ctx context.Context) {
	if t.config.Budget <= 0 || t.config.NoTensors {
		return
	}
	if t.meter.Price() == 0 {
		t.sequencer.Warn(0, "the budget of tracing is not kept: what a report of a tensor takes could not be measured")
		return
	}
	t.meter.SetBudget(t.config.Budget)
	c := budget.NewController(t.config.Budget, rand.Float64)
	before := map[uint32]budget.Count{}
	var away uint64 // since when the probe is detached; 0: it is attached
	for ctx.Err() == nil {
		counts := t.tensors.Counts()
		spent := make(map[uint32]time.Duration, len(counts))
		for pid, n := range counts {
			spent[pid] = t.meter.TimeOf(n.Since(before[pid]))
		}
		before = counts
		on, next := c.Step(clock.Now(), spent)
		switch {
		case on && away != 0:
			t.traceTensorsAgain(away)
			away = 0
		case !on && away == 0:
			t.prober.Reports().Detach()
			away = clock.Now()
			t.lookAtTensors() // the last totals
		default:
			select {
			case <-ctx.Done():
			case <-time.After(next):
			}
		}
	}
}

// traceTensorsAgain attaches the probe on PyTorch's reports, which was detached since a time.
func (t *Tracer) traceTensorsAgain(since uint64) {
	defer t.defects.Recovered(torchalloc.Reading)
	t.tensors.Restart()
	now := clock.Now()
	tx := t.sequencer.Begin()
	tx.Read(torchalloc.Reading, now, func(tx *sequence.Tx) { tx.Tell(ledger.Untraced{From: since, To: now}) })
	tx.Done()
	if err := t.prober.Reports().Attach(); err != nil {
		t.sequencer.Warn(0, fmt.Sprintf("attach the probe on PyTorch's reports again: %v", err))
	}
	t.meter.AddAway(time.Duration(clock.Now() - since))
	t.jobs.add(job{kind: jobBlocks})
}
