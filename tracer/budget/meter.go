// SPDX-License-Identifier: Apache-2.0

// Package budget computes how much of the time of traced threads the probe on PyTorch's reports of
// tensors takes: the number of reports times the price of one.
package budget

import (
	"maps"
	"sync"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Count has what a process has caused since its first report.
type Count struct {
	Reports uint64 // of its allocators
	Stacks  uint64 // taken for them
}

// Since returns what has come since an earlier count; what began anew counts from 0.
func (c Count) Since(before Count) Count {
	if c.Reports < before.Reports || c.Stacks < before.Stacks {
		return c
	}
	return Count{c.Reports - before.Reports, c.Stacks - before.Stacks}
}

const (
	// booking is what a report costs, compared with one that the kernel half has nothing to do for:
	// launch-bound trainings lost 9.2 µs per report on 2 processors, where the latter takes 2.3 µs,
	// and 3.9 µs on 16 processors with an H200. It has the stacks and the processor's caches in it,
	// and so errs on the high side for other jobs.
	booking = 4

	// stackPrice is what the stack trace of a sampled block takes. A known stack takes about 1 µs,
	// a new one up to 30 µs.
	stackPrice = 2 * time.Microsecond

	window    = 10 * time.Second // of TensorCost.Highest
	leastSpan = time.Second      // shorter ones would make a share of a burst
	leastStep = 500 * time.Millisecond
)

// Meter sums what reports cost. Any goroutine may call its methods.
type Meter struct {
	mu        sync.Mutex // guards what follows, never for long
	price     uint64     // of a report without a stack, in ns; 0: unknown
	latest    uint64     // time of the latest reading
	processes map[uint32]*process
	cost      ledger.TensorCost
	gone      ledger.CostShare  // the highest of TensorCost.Session of processes that report no more
	away      map[uint32]uint64 // of processes that report, for how long the probe was detached
}

// process has the readings of one process within the window, oldest first, and one before the first
// of all.
type process struct {
	first    reading
	readings []reading
	session  ledger.CostShare
}

type reading struct {
	time uint64
	Count
}

// SetPrice sets how long a report delays a thread that the kernel half has nothing to do for.
func (m *Meter) SetPrice(price time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.price = uint64(max(price, 0)) * booking
	m.cost.Price = m.price
}

// SetBudget sets the share of a thread's time that a Controller allows.
func (m *Meter) SetBudget(share float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cost.Budget = uint64(min(max(share, 0), 1) * 1e6)
}

// AddAway adds a time in which the probe was detached from a process.
func (m *Meter) AddAway(pid uint32, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away == nil {
		m.away = map[uint32]uint64{}
	}
	if _, known := m.away[pid]; !known {
		m.cost.Paused++
	}
	m.away[pid] += uint64(max(d, 0))
	if m.away[pid] > m.cost.Away {
		m.cost.Away, m.cost.AwayPID = m.away[pid], pid
	}
}

// Price returns what a report costs without a stack; 0 before SetPrice.
func (m *Meter) Price() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.price)
}

// TimeOf returns how long reports and stacks delay a thread.
func (m *Meter) TimeOf(c Count) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.timeOf(c))
}

func (m *Meter) timeOf(c Count) uint64 {
	return c.Reports*m.price + c.Stacks*uint64(stackPrice)
}

// Add takes the counts of all processes that report, by pid, at a time in ns. It forgets processes
// that are not in counts, and ignores a reading that is less than 0.5 s after the one before.
func (m *Meter) Add(now uint64, counts map[uint32]Count) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.processes != nil && now < m.latest+uint64(leastStep) {
		return
	}
	if m.processes == nil {
		m.processes = map[uint32]*process{}
	}
	m.latest = now
	maps.DeleteFunc(m.processes, func(pid uint32, p *process) bool {
		_, reports := counts[pid]
		if !reports {
			raise(&m.gone, p.session)
			delete(m.away, pid)
		}
		return !reports
	})
	m.cost.Session, m.cost.Latest = m.gone, ledger.CostShare{}
	for pid, c := range counts {
		m.add(pid, reading{now, c})
	}
}

func (m *Meter) add(pid uint32, now reading) {
	p := m.processes[pid]
	if p != nil && now.Reports < p.readings[len(p.readings)-1].Reports { // another one with the pid
		raise(&m.gone, p.session)
		raise(&m.cost.Session, p.session)
		p = nil
	}
	if p == nil {
		first := reading{time: now.time - min(uint64(leastSpan), now.time)} // readings come once a second
		p = &process{first: first, readings: []reading{first}}
		m.processes[pid] = p
	}
	for len(p.readings) > 1 && p.readings[1].time+uint64(window) <= now.time {
		p.readings = p.readings[1:]
	}
	p.readings = append(p.readings, now)
	p.session = m.shareOf(pid, &p.first, &now)
	raise(&m.cost.Session, p.session)
	latest := m.shareOf(pid, &p.readings[0], &now)
	raise(&m.cost.Latest, latest)
	raise(&m.cost.Highest, latest)
}

// shareOf returns the share of a process between two readings.
func (m *Meter) shareOf(pid uint32, from, to *reading) ledger.CostShare {
	c := Count{to.Reports - min(from.Reports, to.Reports), to.Stacks - min(from.Stacks, to.Stacks)}
	return ledger.CostShare{PID: pid, Reports: c.Reports, Time: m.timeOf(c), Span: max(to.time-from.time, uint64(leastSpan))}
}

// raise replaces a share by a higher one.
func raise(to *ledger.CostShare, by ledger.CostShare) {
	if by.Reports > 0 && (to.PID == 0 || by.Share() > to.Share()) {
		*to = by
	}
}

// Cost returns what the reports cost so far; without a price no shares.
func (m *Meter) Cost() ledger.TensorCost {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.price == 0 {
		return ledger.TensorCost{}
	}
	return m.cost
}
