// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

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

// System is the memory of one process that the system allocated on the NUMA node of a GPU. It is not
// known to be in NVML's figure for the process, so it is in no sum.
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
