// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"math"
	"slices"
)

// gpuList has the GPUs of the session, and what they used earlier.
type gpuList struct {
	list []GPU
	used map[string]*usedMarks // by UUID
	read uint64                // time of the latest reading
}

// usedMarks has what a GPU used at readings, the older the fewer.
type usedMarks struct {
	list []usedMark
	step uint64 // least time between them, ns
}

// usedMark is one reading: what the GPU used, what of it NVML lists for traced processes, and what
// of that the books do not explain.
type usedMark struct{ time, used, traced, gap uint64 }

const maxMarks = 32

// markUsage notes what all GPUs use at the time of a reading that is booked.
func markUsage(l *Ledger, time uint64) {
	if !l.gpus.isDue(time) {
		return
	}
	of := map[string]usedMark{}
	l.eachAlive(func(p *process) {
		l.spend(16 * (len(p.readings) + len(p.totals)))
		for _, b := range p.balances(0) {
			m := of[b.UUID]
			m.traced += min(b.Usage, maxSum)
			m.gap += min(uint64(max(b.Gap, 0)), maxSum)
			of[b.UUID] = m
		}
	})
	l.gpus.mark(time, of)
}

// isDue reports whether the reading of a time becomes a mark of any GPU.
func (x *gpuList) isDue(time uint64) bool {
	return slices.ContainsFunc(x.list, func(g GPU) bool {
		m := x.used[g.UUID]
		return m == nil || len(m.list) == 0 || minus(time, m.list[len(m.list)-1].time) >= m.step
	})
}

// mark notes what all GPUs use at a time, with what is known of traced processes.
func (x *gpuList) mark(time uint64, of map[string]usedMark) {
	for i := range x.list {
		g := &x.list[i]
		m := x.used[g.UUID]
		if m == nil {
			if len(x.used) >= maxDevices {
				continue
			}
			m = &usedMarks{step: 1e9}
			x.used[g.UUID] = m
		}
		n := len(m.list)
		if n > 0 && minus(time, m.list[n-1].time) < m.step {
			continue
		}
		if n == maxMarks {
			m.thin(time)
		}
		m.list = append(m.list, usedMark{time, g.Used, of[g.UUID].traced, of[g.UUID].gap})
	}
}

// thin removes the mark that is nearest to its neighbors, compared with its age.
func (m *usedMarks) thin(now uint64) {
	best, least := 1, math.Inf(1)
	for i := 1; i < len(m.list)-1; i++ {
		if gap := float64(m.list[i+1].time-m.list[i-1].time) / float64(max(minus(now, m.list[i].time), 1)); gap < least {
			best, least = i, gap
		}
	}
	m.list = slices.Delete(m.list, best, best+1)
}

// earlier sets what each GPU used earlier: at about half of the time from the first reading to the
// latest, at most an hour before.
func (x *gpuList) earlier(list []GPU) {
	for i := range list {
		m := x.used[list[i].UUID]
		if m == nil {
			continue
		}
		for _, k := range m.list {
			list[i].Past = append(list[i].Past, GPUPast{k.time, k.used, k.traced, k.gap})
		}
		if len(m.list) < 3 {
			continue
		}
		n := len(m.list)
		first, last := m.list[0].time, m.list[n-1].time
		k := 0
		for m.list[k].time < max(first+(last-first)/2, minus(last, growthSpan)) {
			k++
		}
		list[i].Time, list[i].EarlierTime, list[i].EarlierUsed = x.read, m.list[k].time, m.list[k].used
	}
}

// forget drops what GPUs used that NVML does not list any more.
func (x *gpuList) forget() {
	for uuid := range x.used {
		if !slices.ContainsFunc(x.list, func(g GPU) bool { return g.UUID == uuid }) {
			delete(x.used, uuid)
		}
	}
}

// Addressing is how a GPU addresses memory that the system allocates, such as malloc's.
type Addressing uint8

const (
	AddressingUnknown Addressing = iota
	AddressingNone               // it cannot
	AddressingHMM                // through a copy of the CPU's page tables, kept by software
	AddressingATS                // through the CPU's own page tables
)

// String returns "ATS", "HMM", "none", or "" if it is unknown.
func (a Addressing) String() string {
	switch a {
	case AddressingNone:
		return "none"
	case AddressingHMM:
		return "HMM"
	case AddressingATS:
		return "ATS"
	}
	return ""
}

// SystemReading has the memory of a process that the system allocated, not CUDA, on the NUMA nodes
// of GPUs at a time. It replaces the reading before it.
type SystemReading struct {
	PID  uint32
	Time uint64
	On   []SystemOn
	// Cut means that the list of the process's memory was too long: the figures are lower bounds.
	Cut bool
}

// SystemOn is the memory on the NUMA node of one GPU.
type SystemOn struct {
	UUID  string
	Bytes uint64
}

// System is the memory of one process that the system allocated on the NUMA node of a GPU. It is
// not known to be in NVML's figure for the process, so it is in no sum.
type System struct {
	Process int
	UUID    string
	Device  int32 // or UnknownDevice
	Bytes   uint64
	Time    uint64 // of the reading
	Cut     bool   // Bytes is a lower bound
}

func (in SystemReading) tell(l *Ledger) {
	if p := l.byPID[in.PID]; p != nil && !l.full() && p.End == 0 && len(in.On) <= maxDevices {
		p.setSystem(&in)
	}
}

func (p *gpuMap) setSystem(in *SystemReading) {
	p.system = p.system[:0]
	for _, on := range in.On {
		if on.Bytes > 0 && on.Bytes <= maxSum {
			p.system = append(p.system, System{UUID: on.UUID, Bytes: on.Bytes, Time: in.Time, Cut: in.Cut})
		}
	}
	slices.SortFunc(p.system, func(a, b System) int { return cmp.Compare(a.UUID, b.UUID) })
}

// systemOf returns the system-allocated memory of a process that runs; number is its index in the
// snapshot.
func (p *gpuMap) systemOf(number int, uuids []string) (list []System) {
	if p.End != 0 {
		return nil
	}
	for _, x := range p.system {
		x.Process, x.Device = number, ordinalOf(uuids, x.UUID)
		list = append(list, x)
	}
	return list
}
