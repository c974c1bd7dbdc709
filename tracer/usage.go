// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// nvmlTimeout bounds one reading: a driver that hangs must not hang us. nvmlLastWait is how long the end of a
// run waits for the one that is under way, and for the last one.
const (
	nvmlTimeout  = 5 * time.Second
	nvmlLastWait = time.Second
)

// readUsage takes one reading of NVML into the books. The end of run does not cut it short at
// once: a driver that was left in the middle of a call would refuse the last reading.
func (t *Tracer) readUsage(run context.Context) {
	if t.config.NVML == nil {
		return
	}
	defer t.defects.recovered("a reading of NVML")
	ctx, cancel := context.WithTimeout(context.Background(), nvmlTimeout)
	defer cancel()
	defer context.AfterFunc(run, func() { time.AfterFunc(nvmlLastWait, cancel) })()
	asked := now()
	gpus, err := t.config.NVML.GPUs(ctx)
	began := now()
	usage, usageErr := t.config.NVML.Usage(ctx)
	time := now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.silence.read(asked, usageErr == nil)
	if err = errors.Join(err, usageErr); err != nil {
		t.books.Warn("NVML gave no complete reading: " + symbolize.Clean(strings.TrimSpace(err.Error())))
	}
	t.readTensors(0)
	if len(gpus) > 0 {
		t.gpus = gpus
		t.books.SetGPUs(gpus)
	}
	for _, p := range t.processes {
		t.setDevices(p)
	}
	if usageErr == nil {
		t.applyUsage()
		t.pending = &pendingUsage{began: began, time: time, usage: usage}
	}
}

// pendingUsage is a reading that waits until the events older than it are in
// the books. A process without an event since it began had the same books at its moment.
type pendingUsage struct {
	began, time uint64
	usage       []ledger.Usage
	seen        bool // the events ring was empty once since
}

// applyUsage takes the pending reading into the books; t.mu is held.
func (t *Tracer) applyUsage() {
	if t.pending == nil {
		return
	}
	for i := range t.pending.usage {
		u := &t.pending.usage[i]
		p := t.processes[u.PID]
		u.Rough = p != nil && p.changed >= t.pending.began
	}
	for _, p := range t.processes {
		p.gpus = 0
	}
	for _, u := range t.pending.usage {
		if p := t.processes[u.PID]; p != nil {
			p.gpus++
		}
	}
	t.doubt(t.pending.usage)
	t.readTensors(0)
	t.markSegments()
	t.books.SetUsage(t.pending.time, t.pending.usage)
	t.pending = nil
}

// applyFirstUsage books the events so far, and then the first reading: processes that
// stand still have their baselines before anybody is told that they are traced.
func (t *Tracer) applyFirstUsage() {
	var record ringbuf.Record
	t.events.SetDeadline(time.Now())
	t.drain(&record)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.applyUsage()
}

// ringWasEmpty notes that all events up to a moment ago are in the books.
func (t *Tracer) ringWasEmpty() {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.defects.recovered("a reading of NVML")
	t.emptied++
	if t.pending == nil {
		return
	}
	if t.pending.seen {
		t.applyUsage()
		return
	}
	t.pending.seen = true // the reading may have come after the look into the ring
}

// watchUsage reads once a second, soon after the first allocation of a new
// process (which may be gone in a second), and once more at the end.
func (t *Tracer) watchUsage(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-t.newUser:
			t.readUsage(ctx)
		case <-ctx.Done():
			t.readUsage(ctx)
			return
		case <-tick.C:
			t.readUsage(ctx)
		}
	}
}
