// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"sync"
	"testing"

	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// eventfulNVML lets something happen when it is asked for the first time.
type eventfulNVML struct {
	gpuusage.NVML
	once   sync.Once
	before func()
}

func (n *eventfulNVML) GPUs(ctx context.Context) ([]ledger.GPU, error) {
	n.once.Do(n.before)
	return n.NVML.GPUs(ctx)
}

// TestTheFirstReadingIsBookedAfterTheEventsBeforeIt: what is allocated between the probes and that
// reading is not older than the attach.
func TestTheFirstReadingIsBookedAfterTheEventsBeforeIt(t *testing.T) {
	m := newMachine(t, 1)
	p := m.script("calls_c", nil, "cudaMalloc a 4096", "ready", "wait", "cudaMalloc b 100000000", "print taken", "wait")
	p.ready()
	m.trace(func(c *Config) {
		c.NVML = &eventfulNVML{NVML: c.NVML, before: func() {
			p.next()
			p.expect("taken")
		}}
	})
	s := m.snapshot()
	_, index := processOf(t, s, p.pid())
	for _, x := range s.Parts() {
		if x.Process == index && (x.Driver != 100_000_000 || x.Beyond() > page || x.Unexplained > page || x.Foreign > 310<<20) {
			t.Errorf("%+v, want 100 MB of the program and what it had before", x)
		}
	}
	if s.BalanceOf(index, 0) < 0 {
		t.Error("NVML said nothing of the process")
	}
}
