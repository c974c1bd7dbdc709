// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// nvmlTimeout bounds one reading: a driver that hangs must not hang us. nvmlLastWait is how long the end of a
// run waits for the one that is under way, and for the last one.
const (
	nvmlTimeout  = 5 * time.Second
	nvmlLastWait = time.Second
)

// What a defect costs, in words.
const (
	readingNVML    = "a reading of NVML"
	readingTensors = "a reading of tensors"
	readingBooks   = "a look at the books"
)

// readUsage takes one reading of NVML into the books. The end of run does not cut it short at
// once: a driver that was left in the middle of a call would refuse the last reading.
func (t *Tracer) readUsage(run context.Context) {
	if t.config.NVML == nil {
		return
	}
	t.oneUsage.Lock() // the books can watch one reading at a time
	defer t.oneUsage.Unlock()
	defer t.defects.Recovered(readingNVML)
	ctx, cancel := context.WithTimeout(context.Background(), nvmlTimeout)
	defer cancel()
	defer context.AfterFunc(run, func() { time.AfterFunc(nvmlLastWait, cancel) })()
	asked := clock.Now()
	gpus, err := t.config.NVML.GPUs(ctx)
	began := t.openUsage()
	usage, usageErr := t.config.NVML.Usage(ctx)
	time := clock.Now()
	t.desk.Take()
	defer t.turn.Done()
	t.silence.read(asked, usageErr == nil)
	if err = errors.Join(err, usageErr); err != nil {
		t.turn.Tell(ledger.Warning{Text: "NVML gave no complete reading: " + untrusted.Clean(strings.TrimSpace(err.Error()))})
	}
	if len(gpus) > 0 {
		t.gpus = gpus
		t.turn.Tell(ledger.GPUs(gpus))
	}
	for _, p := range t.processes {
		t.setDevices(p)
	}
	if usageErr == nil {
		t.turn.Read(readingNVML, time, func() { t.takeUsage(began, time, usage) })
	}
}

// openUsage has the books watch what changes while NVML is read, from now on.
func (t *Tracer) openUsage() uint64 {
	t.desk.Take()
	defer t.turn.Done()
	began := clock.Now()
	t.turn.Read(readingNVML, began, func() { t.turn.Tell(ledger.UsageOpened{Time: began}) })
	return began
}

// takeUsage tells the books a reading of NVML between began and time, when they have all events before it; in a turn.
func (t *Tracer) takeUsage(began, time uint64, usage []ledger.Usage) {
	for i := range usage {
		p := t.processes[usage[i].PID]
		usage[i].Rough = p != nil && p.changed >= began
	}
	for _, p := range t.processes {
		p.gpus = 0
	}
	for _, u := range usage {
		if p := t.processes[u.PID]; p != nil {
			p.gpus++
		}
	}
	t.doubt(usage)
	t.markSegments()
	t.turn.Tell(ledger.UsageReading{Time: time, Usages: usage})
}

// bookFirstEvents books what is in the ring before anybody is told that processes are traced: those that
// stand still have their baselines then.
func (t *Tracer) bookFirstEvents() {
	var record ringbuf.Record
	t.events.SetDeadline(time.Now())
	t.drain(&record)
	t.desk.Take()
	defer t.turn.Done()
	t.turn.TakeAll()
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

// watchTensors reads the totals of PyTorch's allocators once a second, whatever NVML does.
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
	defer t.defects.Recovered(readingTensors)
	t.desk.Take()
	defer t.turn.Done()
	t.readTensors()
}
