// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
	"sort"
)

// Part splits what a process uses on one GPU, each byte once:
//
//	Usage + Since = Tensors + Cached + Driver + Rounding + Untraced + OlderAllocated + OlderCached + Foreign + Unplaced + Unexplained
//
// Where the books have more than NVML's figure, the surplus was taken off these terms, and is
// Beyond: see Term. Below 0 no sum falls, even where Usage + Since is.
type Part struct {
	Process int // as in the Balance
	UUID    string
	Device  int32

	Tensors        uint64 // allocated since the attach, in any segment; those asleep have no memory
	Cached         uint64 // free memory of segments allocated since the attach
	Driver         uint64 // other driver allocations
	Internal       uint64 // part of Driver: what the driver took for itself
	Rounding       uint64 // what the driver holds for allocations since the attach beyond their bytes
	Untraced       uint64 // tensors allocated while their allocator was not traced
	OlderAllocated uint64 // tensors allocated before the attach
	OlderCached    uint64 // rest of the segments that are older than the attach
	Foreign        uint64 // other memory from before the attach: context, modules, other libraries
	// What the process holds there if NVML does not list it (Balance.Unlisted); then the others are
	// 0.
	Unlisted uint64
	// Its share of the process's memory on unknown GPUs, taken off Unexplained and Foreign.
	Unplaced    uint64
	Unexplained uint64

	Taken Taken

	Usage uint64 // at NVML's last reading
	// Booked since that reading, so that the parts add up to what NVML would report at the
	// snapshot's moment.
	Since int64
}

// Term is a term of a Part, in the order in which Parts takes off what is beyond NVML's figure:
// first what follows from that figure, then what an allocator can give back, last what the user's
// code holds.
type Term uint8

const (
	TermForeign Term = iota
	TermRounding
	TermOlderCached
	TermCached
	TermDriver
	TermUnplaced
	TermOlderAllocated
	TermUntraced
	TermTensors
	Terms // how many there are
)

// of returns a term of a part.
func (t Term) of(p *Part) *uint64 {
	return [...]*uint64{
		&p.Foreign, &p.Rounding, &p.OlderCached, &p.Cached, &p.Driver, &p.Unplaced, &p.OlderAllocated, &p.Untraced, &p.Tensors,
	}[t]
}

// Bytes returns what a part has of a term.
func (t Term) Bytes(p *Part) uint64 { return *t.of(p) }

// Taken has what was taken off each term of a Part, since it was beyond NVML's figure.
type Taken [Terms]uint64

// Sum returns all that was taken.
func (t *Taken) Sum() (sum uint64) {
	for _, n := range t {
		sum += n
	}
	return sum
}

// Beyond returns what the terms had beyond NVML's figure, which is in no term.
func (p *Part) Beyond() uint64 { return p.Taken.Sum() }

// Books returns the part with what the books have, before Beyond was taken off its terms.
func (p *Part) Books() Part {
	b := *p
	for t, n := range p.Taken {
		*Term(t).of(&b) += n
	}
	return b
}

// settle takes bytes beyond NVML's figure off the terms.
func (p *Part) settle(bytes uint64) {
	for t := range Terms {
		n := min(bytes, t.Bytes(p))
		*t.of(p) -= n
		p.Taken[t] = n
		bytes -= n
	}
	p.Internal = min(p.Internal, p.Driver)
}

// Parts returns one Part for each of Balances, in their order: what was at the snapshot's moment,
// except Unexplained, which is from NVML's last reading. The parts of a process never add up to
// more than it uses: memory on unknown GPUs counts once, as Unplaced.
func (s *Snapshot) Parts() []Part {
	parts := make([]Part, len(s.Balances))
	for i := range s.Balances {
		b := &s.Balances[i]
		parts[i] = Part{Process: b.Process, UUID: b.UUID, Device: b.Device, OlderAllocated: b.OlderTensors, Foreign: b.Baseline - b.OlderTensors, Rounding: b.Rounding + uint64(b.RoundingSince), Usage: b.Usage, Since: b.Since}
	}
	only, beyond := make([]string, len(s.Processes)), make([]int64, len(parts))
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
			if x.Kind == Internal {
				parts[b].Internal += x.LiveBytes
			}
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
		part.Untraced += t.Untraced
		part.OlderAllocated += t.Older - t.OlderAsleep - t.OlderMoved - t.Untraced
		part.OlderCached += t.OlderCached
		part.Foreign = minus(part.Foreign, minus(s.Balances[b].Baseline, t.Foreign))
	}
	for i := range parts {
		p := &parts[i]
		if s.Balances[i].Unlisted {
			sum := p.Tensors + p.Cached + p.Driver + p.Untraced + p.OlderAllocated + p.OlderCached
			*p = Part{Process: p.Process, UUID: p.UUID, Device: p.Device, Unlisted: sum}
			continue
		}
		for t := range Terms {
			beyond[i] += int64(t.Bytes(p))
		}
		beyond[i] -= int64(p.Usage) + p.Since
		p.Unexplained = uint64(max(-beyond[i], 0))
	}
	s.takeUnplaced(parts, beyond, s.unplaced(only))
	for i := range parts {
		parts[i].settle(uint64(max(beyond[i], 0)))
	}
	return parts
}

// BalanceOf returns the index in Balances of the GPU that a device of a process means, or -1.
func (s *Snapshot) BalanceOf(process int, device int32) int {
	return s.balanceOn(process, device, s.onlyGPU(process))
}

// balanceOn is BalanceOf; only is the GPU that alone carries the process, "" if there are several.
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

// balancesOf returns the range of a process in Balances, which are sorted by process.
func (s *Snapshot) balancesOf(process int) (from, to int) {
	from = sort.Search(len(s.Balances), func(i int) bool { return s.Balances[i].Process >= process })
	for to = from; to < len(s.Balances) && s.Balances[to].Process == process; to++ {
	}
	return from, to
}

// gone reports whether NVML listed a process before, and lists it on no GPU now: see
// Balance.Unlisted.
func (s *Snapshot) gone(process int) bool {
	from, to := s.balancesOf(process)
	return from < to && !slices.ContainsFunc(s.Balances[from:to], func(b Balance) bool { return !b.Unlisted })
}

// AnyUnlisted reports whether IsUnlisted is true of any process and device.
func (s *Snapshot) AnyUnlisted() bool {
	return slices.ContainsFunc(s.Balances, func(b Balance) bool { return b.Unlisted })
}

// IsUnlisted reports whether NVML no longer lists a process where it has memory of a device: see
// Balance.Unlisted.
func (s *Snapshot) IsUnlisted(process int, device int32) bool {
	if b := s.BalanceOf(process, device); b >= 0 {
		return s.Balances[b].Unlisted
	}
	return device >= UnknownDevice && s.gone(process)
}

// TensorsOn returns the totals of a process's PyTorch allocator on a device, nil without one.
func (s *Snapshot) TensorsOn(process int, device int32) *Tensors {
	at, ok := slices.BinarySearchFunc(s.Tensors, processDevice{process, device}, func(t Tensors, p processDevice) int {
		return cmp.Or(cmp.Compare(t.Process, p.process), cmp.Compare(t.Device, p.device))
	})
	if !ok {
		return nil
	}
	return &s.Tensors[at]
}

// CacheOn returns what was read of an allocator; nil: nothing.
func (s *Snapshot) CacheOn(process int, device int32) *AllocatorCache {
	for i := range s.Caches {
		if c := &s.Caches[i]; c.Process == process && c.Index == device {
			return c
		}
	}
	return nil
}

// onlyGPU returns the GPU that alone carries a process, "" if there are several, as process.onlyGPU
// does.
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

// processDevice is a device of a process, by its index in the snapshot.
type processDevice struct {
	process int
	device  int32
}
