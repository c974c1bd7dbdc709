// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
	"sort"
)

// Part splits what a process uses on one GPU, each byte once:
//
//	Usage + Since = Tensors + Cached + Driver + OlderAllocated + OlderCached + Foreign + Unplaced + Unexplained
type Part struct {
	Process int // as in the Balance
	UUID    string
	Device  int32

	Tensors        uint64 // allocated since the attach, in whatever segments they lie; those asleep have no memory
	Cached         uint64 // in segments allocated since the attach, and not given out
	Driver         uint64 // other driver allocations
	OlderAllocated uint64 // tensors that were allocated before the attach
	OlderCached    uint64 // the rest of the segments that are older than the attach
	Foreign        uint64 // what was there at the attach besides: context, modules, other libraries
	Unplaced       uint64 // its share of what the process has on GPUs that are not known, taken off Unexplained and Foreign
	Unexplained    int64

	Usage uint64 // as of NVML's last reading
	Since int64  // booked since that reading; so the parts add up to what NVML would say at the snapshot's moment
}

// Parts returns one Part for each of Balances, in their order. All parts are those of the snapshot's moment but for Unexplained,
// which is as of NVML's last reading. With what the process has on GPUs that are not known in place of Unplaced, those of one process
// add up to what it uses, and never to more.
func (s *Snapshot) Parts() []Part {
	parts := make([]Part, len(s.Balances))
	for i := range s.Balances {
		b := &s.Balances[i]
		parts[i] = Part{Process: b.Process, UUID: b.UUID, Device: b.Device, Foreign: b.Baseline, Usage: b.Usage, Since: b.Since}
	}
	only := make([]string, len(s.Processes))
	for i := range only {
		only[i] = s.onlyGPU(i)
	}
	for i := range s.Sites {
		x := &s.Sites[i]
		if !x.Kind.Owned() {
			continue
		}
		if b := s.balanceOn(x.Process, x.Device, only[x.Process]); b >= 0 {
			parts[b].Driver += x.LiveBytes
		}
	}
	for i := range s.Tensors {
		t := &s.Tensors[i]
		b := s.balanceOn(t.Process, t.Device, only[t.Process])
		if b < 0 {
			continue
		}
		part := &parts[b]
		part.Tensors += t.LiveBytes - t.Asleep
		part.Cached += t.Cached
		part.Driver = minus(part.Driver, t.Segments)
		part.OlderAllocated += t.Older - t.OlderAsleep - t.OlderMoved
		part.OlderCached += t.OlderCached
		part.Foreign = minus(part.Foreign, minus(s.Balances[b].Baseline, t.Foreign))
	}
	for i := range parts {
		p := &parts[i]
		p.Unexplained = int64(p.Usage + uint64(p.Since) - p.Tensors - p.Cached - p.Driver - p.OlderAllocated - p.OlderCached - p.Foreign)
	}
	s.takeUnplaced(parts, s.unplaced(only))
	return parts
}

// BalanceOf returns the index in Balances of the GPU that a device of a process is, or -1.
func (s *Snapshot) BalanceOf(process int, device int32) int {
	return s.balanceOn(process, device, s.onlyGPU(process))
}

// balanceOn is BalanceOf where only is the one GPU that carries the process, "" if there are several.
func (s *Snapshot) balanceOn(process int, device int32, only string) int {
	if device < UnknownDevice {
		return -1
	}
	if d := s.Processes[process].Devices; only == "" && device >= 0 && int(device) < len(d) {
		only = d[device]
	}
	if only == "" {
		return -1
	}
	from, to := s.balancesOf(process)
	if at := slices.IndexFunc(s.Balances[from:to], func(b Balance) bool { return b.UUID == only }); at >= 0 {
		return from + at
	}
	return -1
}

// balancesOf returns where the balances of a process are: they are in the order of processes.
func (s *Snapshot) balancesOf(process int) (from, to int) {
	from = sort.Search(len(s.Balances), func(i int) bool { return s.Balances[i].Process >= process })
	for to = from; to < len(s.Balances) && s.Balances[to].Process == process; to++ {
	}
	return from, to
}

// TensorsOn returns what PyTorch's allocator of a process has on a device, nil without one.
func (s *Snapshot) TensorsOn(process int, device int32) *Tensors {
	at, ok := slices.BinarySearchFunc(s.Tensors, place{process, device}, func(t Tensors, p place) int {
		return cmp.Or(cmp.Compare(t.Process, p.process), cmp.Compare(t.Device, p.device))
	})
	if !ok {
		return nil
	}
	return &s.Tensors[at]
}

// onlyGPU returns the one GPU that carries a process, "" if there are several: as process.onlyGPU does.
func (s *Snapshot) onlyGPU(process int) string {
	p := &s.Processes[process]
	ordinal, uuid := int32(UnknownDevice), ""
	if len(p.Devices) == 1 {
		ordinal, uuid = 0, p.Devices[0]
	} else {
		from, to := s.balancesOf(process)
		for i := from; i < to; i++ {
			if uuid != "" {
				return ""
			}
			uuid = s.Balances[i].UUID
			ordinal = ordinalOf(p.Devices, uuid)
		}
	}
	if ordinal == UnknownDevice {
		return uuid
	}
	for i := range p.Totals {
		if t := &p.Totals[i]; t.Device >= 0 && t.Device != ordinal && !t.Kind.OnHost() {
			return ""
		}
	}
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.Process == process && t.Device >= 0 && t.Device != ordinal {
			return ""
		}
	}
	return uuid
}
