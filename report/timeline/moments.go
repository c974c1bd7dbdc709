// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Moments are those that Play takes snapshots at.
type Moments struct {
	Begin, End uint64
	Steps      int // about how many there are, without Peaks
	// When the ledger found the peaks of processes and their GPUs: ledger.PeakTimes of the session
	// up to End. MaxPeaks of them count.
	Peaks []uint64
}

// MaxPeaks is the most peaks of processes and GPUs among the moments of Play.
const MaxPeaks = 32

// eventLag is how much older than a preceding input an event may be, in ns, as in captures: events
// wait in the kernel's ring.
const eventLag = uint64(time.Second)

// newInUse returns the sums of an empty session, from which a timeline shall be made.
func newInUse(m Moments) *inUse {
	begin, steps := min(m.Begin, m.End), max(m.Steps-2, 1)
	return &inUse{
		Moments: m, begin: begin, end: m.End, step: max((m.End-begin)/uint64(steps), 1), highest: make([]high, steps),
		rows: map[useKey]*use{}, of: map[uint32][]*use{}, live: map[uint32]map[liveKey]held{},
	}
}

// moments returns the moments up to a time that a timeline should show by what is known so far:
// begin, end, the highest use of each step between them, and the peaks that the ledger found.
func (u *inUse) moments(until uint64) []uint64 {
	times := []uint64{u.begin, u.end}
	for i, h := range u.highest {
		if h.time == 0 { // nothing happened: any moment shows it
			h.time = u.begin + u.step*uint64(i+1)
		}
		times = append(times, min(h.time, u.end))
	}
	for _, at := range u.Peaks[:min(len(u.Peaks), MaxPeaks)] {
		if at >= u.begin {
			times = append(times, min(at, u.end))
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	n := slices.IndexFunc(times, func(at uint64) bool { return at > until })
	if n < 0 {
		return times
	}
	return times[:n]
}

// settled returns a time before the end up to which no later input changes the moments, if the
// latest that is not an event came at input. Inputs come in order, and an event is at most eventLag
// older than an input before it. If forced, it is the time of the latest input, whatever comes.
func (u *inUse) settled(input uint64, forced bool) uint64 {
	if forced {
		u.clock = max(u.clock, u.begin, input)
		for _, x := range u.rows {
			u.settle(x)
		}
		return min(u.clock, u.end)
	}
	u.clock = max(u.clock, u.begin, input-min(input, eventLag))
	before := min(u.clock, u.end)
	for _, x := range u.rows {
		if x.open != 0 {
			before = min(before, x.open)
		}
	}
	return max(before, 1) - 1
}

type high struct {
	bytes int64
	time  uint64
}

// reach takes a value if it is the highest so far.
func (h *high) reach(bytes int64, time uint64) {
	if h.time == 0 || bytes > h.bytes {
		h.bytes, h.time = bytes, time
	}
}

type useKey struct {
	pid    uint32
	device int32
}

type liveKey struct {
	space   ledger.Space
	address uint64
}

// held is a live allocation.
type held struct {
	size   uint64
	device int32
}

// use is what one process has on one device. driver includes its segments; cached is what PyTorch
// keeps of them. A segment from before the attach is in cached alone, so the sum can be negative:
// only its changes matter.
type use struct {
	driver, cached int64
	tells          bool   // PyTorch's allocator reports
	open           uint64 // time of a driver allocation whose purpose is not reported yet; 0: none
}

func (x *use) bytes() int64 { return x.driver - x.cached }

// inUse sums how much is in use, and nothing else: what was allocated from the driver, and of
// PyTorch's segments only their blocks. It observes no ledger, which has the inputs later: see
// ahead. Its rules are simpler than the ledger's (it knows no contexts, mappings or failed frees),
// so it only chooses the moments of steps: peaks, and all figures of a timeline, come from the
// ledger.
type inUse struct {
	Moments
	begin, end, step uint64
	clock            uint64
	sum              int64
	highest          []high // by step
	rows             map[useKey]*use
	of               map[uint32][]*use           // rows by pid
	live             map[uint32]map[liveKey]held // by pid
	opening          *ledger.Ledger              // while a capture's opening is told
}

func (u *inUse) row(pid uint32, device int32) *use {
	key := useKey{pid, device}
	x := u.rows[key]
	if x == nil {
		x = &use{}
		u.rows[key] = x
		u.of[pid] = append(u.of[pid], x)
	}
	return x
}

func (u *inUse) Apply(e *ledger.Event) {
	if u.opening != nil {
		u.endOpening()
	}
	u.clock = max(u.clock, e.Time)
	switch {
	case e.Op == ledger.Exit || e.Op == ledger.Exec:
		u.exit(e.PID)
		return
	case e.Space == ledger.Blocks:
		if e.Told&ledger.ToldAllocated != 0 {
			u.told(e.PID, e.Device, e.Allocated, e.Reserved)
		}
		return
	case e.Op == ledger.Alloc && e.Kind.Owned() && e.Size != ledger.UnknownSize:
		u.free(e)
		u.alloc(e.PID, liveKey{e.Space, e.Address}, held{e.Size, e.Device})
	case e.Op == ledger.Free:
		u.free(e)
	}
}

func (u *inUse) alloc(pid uint32, key liveKey, x held) {
	if u.live[pid] == nil {
		u.live[pid] = map[liveKey]held{}
	}
	u.live[pid][key] = x
	u.change(u.row(pid, x.device), int64(x.size), 0)
}

// free removes an allocation.
func (u *inUse) free(e *ledger.Event) {
	key := liveKey{e.Space, e.Address}
	if x, ok := u.live[e.PID][key]; ok {
		delete(u.live[e.PID], key)
		u.change(u.row(e.PID, x.device), -int64(x.size), 0)
	}
}

func (u *inUse) told(pid uint32, device int32, allocated, reserved uint64) {
	if device == ledger.CPUDevice {
		return
	}
	x := u.row(pid, device)
	x.tells, x.open = true, 0
	cached := int64(reserved - allocated)
	if reserved == 0 { // it tells nothing
		cached = -int64(allocated)
	}
	u.change(x, 0, cached-x.cached)
}

// change books a change. Driver memory of PyTorch counts as in use from its next report on, unless
// other events come first: it may have been another library's.
func (u *inUse) change(x *use, driver, cached int64) {
	u.settle(x)
	x.driver += driver
	x.cached += cached
	u.sum += driver - cached
	if driver > 0 && x.tells {
		x.open = u.clock
		return
	}
	u.look(u.clock)
}

// settle counts driver memory of PyTorch whose purpose nobody reported as in use.
func (u *inUse) settle(x *use) {
	if x.open != 0 {
		u.look(x.open)
	}
	x.open = 0
}

func (u *inUse) look(at uint64) {
	if at > u.begin {
		u.highest[min((at-u.begin-1)/u.step, uint64(len(u.highest)-1))].reach(u.sum, at)
	}
}

func (u *inUse) exit(pid uint32) {
	for _, x := range u.of[pid] {
		u.sum -= x.bytes()
		x.driver, x.cached = 0, 0
	}
	delete(u.live, pid)
}

// Tell takes the readings of allocators, in place of the totals that events of older captures lack.
func (u *inUse) Tell(in ledger.Input) {
	if piece, ok := in.(ledger.Carried); ok {
		u.open(piece)
		return
	}
	reading, ok := in.(ledger.TensorReading)
	if !ok {
		return
	}
	u.clock = max(u.clock, reading.Time)
	for i := range reading.Totals {
		x := &reading.Totals[i]
		u.told(x.PID, x.Device, x.Allocated, x.Reserved)
	}
}
