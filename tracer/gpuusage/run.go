// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// timeout bounds one reading: a driver that hangs must not hang us. lastWait is how long the end of
// a run waits for the reading that is under way, and for the last one.
const (
	timeout  = 5 * time.Second
	lastWait = time.Second
)

// reading is what a panic costs, in words.
const reading = "a reading of NVML"

// Run reads once per second, soon after Soon, and once more when ctx ends. While no process uses
// CUDA, it has the driver suspended: see idle.
func (m *Monitor) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-m.soon:
			m.idle.end()
		case <-m.wake:
			if !m.idle.suspended {
				continue
			}
			m.idle.end()
		case done := <-m.rest:
			done <- m.suspend(time.Now().Add(idleAfter))
			continue
		case <-ctx.Done():
			if !m.idle.suspended {
				m.Read(ctx)
			}
			return
		case <-tick.C:
			if !m.idle.due(m.inUse()) {
				continue
			}
		}
		m.Read(ctx)
		if m.idle.over(m.inUse()) {
			_ = m.suspend(time.Time{}) // if it fails, the next reading is as always
		}
	}
}

// Soon asks for a reading: a process has made its first allocation, and may be gone in a second, or
// its first on another GPU, where the books know of nothing of it. It never blocks.
func (m *Monitor) Soon() { signal(m.soon) }

// Wake ends a suspension: a process, traced or not, begins to use CUDA. It never blocks.
func (m *Monitor) Wake() { signal(m.wake) }

// inUse reports whether a process is traced that may use CUDA, or NVML listed any process.
func (m *Monitor) inUse() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.processes) > 0 || m.others
}

// Suspend closes all that is open of the driver, for a minute at least unless a process begins to
// use CUDA. Run must be running.
func (m *Monitor) Suspend(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case m.rest <- done:
		return <-done // at most timeout later
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *Monitor) suspend(least time.Time) error {
	if m.NVML == nil {
		return nil
	}
	m.one.Lock()
	defer m.one.Unlock()
	defer m.Defects.Recovered(reading)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := m.NVML.Suspend(ctx)
	if err == nil {
		m.idle = idle{suspended: true, least: least}
	}
	return err
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// incomplete returns what a reading lacks, each reason once.
func incomplete(errs ...error) string {
	var list []string
	for _, err := range errs {
		if err == nil {
			continue
		}
		for _, line := range strings.Split(strings.TrimSpace(err.Error()), "\n") {
			if line = untrusted.Clean(line); !slices.Contains(list, line) {
				list = append(list, line)
			}
		}
	}
	return strings.Join(list, "; ")
}

// Read has the books take one reading of NVML. The end of run does not cut it short at once: a
// driver that was left in the middle of a call would refuse the last reading.
func (m *Monitor) Read(run context.Context) {
	if m.NVML == nil {
		return
	}
	m.one.Lock()
	defer m.one.Unlock()
	defer m.Defects.Recovered(reading)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	defer context.AfterFunc(run, func() { time.AfterFunc(lastWait, cancel) })()
	asked := clock.Now()
	gpus, err := m.NVML.GPUs(ctx)
	began := m.open()
	usage, usageErr := m.NVML.Usage(ctx)
	time := clock.Now()
	tx := m.Sequencer.Begin()
	defer tx.Done()
	pids := m.note(asked, gpus, usageErr == nil, len(usage) > 0)
	if text := incomplete(err, usageErr); text != "" {
		tx.Tell(ledger.Warning{Text: "NVML gave no complete reading: " + text})
	}
	if len(gpus) > 0 {
		tx.Tell(ledger.GPUs(gpus))
	}
	for _, pid := range pids {
		m.tellDevices(tx, pid)
	}
	if usageErr == nil {
		tx.Read(reading, time, func(tx *sequence.Tx) { m.take(tx, began, time, usage) })
	}
}

// open has the books watch what changes while NVML is read, from now on.
func (m *Monitor) open() uint64 {
	tx := m.Sequencer.Begin()
	defer tx.Done()
	began := clock.Now()
	tx.Read(reading, began, func(tx *sequence.Tx) { tx.Tell(ledger.UsageOpened{Time: began}) })
	return began
}

// note keeps what NVML answered, and returns the processes whose GPUs the books do not know yet.
func (m *Monitor) note(asked uint64, gpus []ledger.GPU, complete, others bool) (pids []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.others = others
	m.silence.read(asked, complete)
	if len(gpus) > 0 {
		m.gpus = gpus
	}
	for pid, p := range m.processes {
		if !p.told {
			pids = append(pids, pid)
		}
	}
	return pids
}

// take tells the books a reading between began and time, when they have all events before it.
func (m *Monitor) take(tx *sequence.Tx, began, time uint64, usage []ledger.Usage) {
	listed := map[uint32]int{}
	for i := range usage {
		at, known := m.Changed(usage[i].PID)
		usage[i].Rough = known && at >= began
		if known {
			listed[usage[i].PID]++
		}
	}
	for _, pid := range m.doubt(listed, usage, tx.HeldOrdinals) {
		tx.Tell(ledger.Devices{PID: pid, UUIDs: nil})
		m.LookAgain(pid)
	}
	m.Before(tx)
	tx.Tell(ledger.UsageReading{Time: time, Usages: usage})
}
