// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"math"
)

// toldTotals has the totals of an allocator at its newest report of them, by an event or a reading.
type toldTotals struct {
	time                      uint64
	allocated, reserved, live uint64
	known                     bool // there was a reading or an event
	// First report since the attach: live is right even without liveKnown.
	begun     bool
	liveKnown bool // otherwise live follows from the classes
}

// tellTotals books the totals in an event of an allocator.
func (p *torch) tellTotals(e *Event) {
	if e.hasTotals() && !p.purged {
		p.tell(&p.tensors[p.tensorsOn(tensorDevice(e.Device))], e)
	}
}

// tell books the totals of an event. If the event does not have the live bytes, the bytes from
// before the attach stay as they were: the kernel half sends Totals when they change.
func (p *torch) tell(t *tensors, e *Event) {
	if e.Told&ToldAllocated == 0 || t.device < 0 || e.Time < t.now.time {
		return
	}
	now := toldTotals{
		time: e.Time, allocated: min(e.Allocated, maxTensors), reserved: min(e.Reserved, maxTensors), known: true,
		liveKnown: t.now.liveKnown || t.now.begun || e.Told&ToldLive != 0 || e.Reserved == 0,
	}
	switch {
	case e.Told&ToldLive != 0:
		now.live = min(e.Live, maxTensors)
	case e.Reserved == 0:
		now.live = now.allocated
	default:
		now.live = minus(now.allocated, minus(t.now.allocated, t.now.live))
	}
	if now.reserved == 0 {
		now.allocated = 0
	}
	p.spend(len(t.changes))
	if len(t.changes) > 0 && t.now.known {
		p.learnSegments(t, now.reserved, e.Time)
	}
	p.keepTold(t)
	t.now = now
	if !t.open {
		t.phases.Reach(e.Time, now.allocated)
	}
	t.peak.reach(now.allocated, e.Time)
	p.reachedTensors(now.allocated, e.Time)
	if now.liveKnown {
		t.livePeak.reach(now.live, e.Time)
	}
	if len(t.changes)+len(t.returned) > 0 {
		t.forgetChanges()
	}
}

// learnSegments takes a driver allocation for a segment if the allocator has as many more bytes
// reserved than before: the allocation's stack may not be known yet.
func (p *torch) learnSegments(t *tensors, reserved, time uint64) {
	grown := int64(reserved - t.now.reserved)
	var unknown []segmentChange
	var sum int64
	for _, r := range t.returned {
		if r.time <= time {
			grown += int64(r.bytes)
		}
	}
	for _, c := range t.changes {
		s := p.sites[c.site]
		switch bytes := int64(c.bytes); {
		case c.time > time || s.device != t.device && s.device != UnknownDevice:
		case s.segment && c.freed:
			grown += bytes
		case s.segment:
			grown -= bytes
		case !c.freed:
			unknown = append(unknown, c)
			sum += bytes
		}
	}
	fitting := 0 // allocations that fit by themselves
	for _, c := range unknown {
		if grown == int64(c.bytes) {
			fitting++
		}
	}
	for _, c := range unknown {
		if grown == sum || fitting == 1 && grown == int64(c.bytes) {
			p.sites[c.site].segment = true
		}
	}
}

// readTotals books the totals of a reading, unless an event had newer ones.
func (t *tensors) readTotals(x *TensorTotals, time uint64) {
	r := &t.reading
	if cmp.Or(x.Reported, time) < t.now.time {
		return
	}
	// PeakTime: each report was looked at
	t.now = toldTotals{time: x.Reported, allocated: r.allocated, reserved: r.reserved, live: r.live.bytes, known: true, liveKnown: x.Live != 0 || x.PeakTime != 0}
	t.forgetChanges()
}

// sampleSince has the changes of the sample since the last reading, by size class.
type sampleSince struct {
	classes *[SizeClasses]struct{ live, freed signedCount }
}

type signedCount struct{ objects, bytes int64 }

// sampleChanged notes that a block of the sample was allocated or freed, if the reading does not
// include it.
func (t *tensors) sampleChanged(class uint8, time uint64, w *count, freed bool) {
	if t.reading.taken && time <= t.reading.reported || int(class) >= SizeClasses {
		return
	}
	if t.since.classes == nil {
		t.since.classes = new([SizeClasses]struct{ live, freed signedCount })
	}
	c := &t.since.classes[class]
	if !freed {
		c.live.objects += int64(w.objects)
		c.live.bytes += int64(w.bytes)
		return
	}
	c.live.objects -= int64(w.objects)
	c.live.bytes -= int64(w.bytes)
	c.freed.objects += int64(w.objects)
	c.freed.bytes += int64(w.bytes)
}

// tensorState is the state of an allocator after the newest event. Allocated, reserved and live
// bytes are exact if events report them, else those of the last reading. Other changes since then
// are those of the sample, and so are exact if all blocks are in it.
type tensorState struct {
	allocated, reserved uint64
	live, freed         count         // sums over classes
	classes             []tensorClass // by SizeClass; nil: only the sample is known
}

func (s *session) stateOf(t *tensors) tensorState {
	if !t.reading.taken && !t.now.liveKnown {
		return tensorState{allocated: t.now.allocated, reserved: t.now.reserved, live: t.live, freed: t.freed}
	}
	m := tensorState{allocated: t.now.allocated, reserved: t.now.reserved, classes: make([]tensorClass, SizeClasses)}
	for class := range m.classes {
		c := &m.classes[class]
		*c = t.reading.class(class)
		if t.since.classes != nil && t.now.liveKnown {
			x, p := &t.since.classes[class], s.inclusion(class)
			c.live = c.live.changed(&x.live, p)
			c.freed = c.freed.changed(&x.freed, p)
		}
	}
	if t.now.liveKnown && t.now.time > t.reading.reported {
		s.fitLive(m.classes, t.now.live)
	}
	for class := range m.classes {
		m.live.take(&m.classes[class].live)
		m.freed.take(&m.classes[class].freed)
	}
	return m
}

// changed adds the changes of the sample of a class of probability p.
func (c count) changed(by *signedCount, p float64) count {
	add := func(n uint64, d int64) uint64 {
		if p != 1 {
			d = int64(math.Round(min(max(float64(d)/p, -maxTensors), maxTensors)))
		}
		if d < 0 {
			return minus(n, uint64(-d))
		}
		return min(n+uint64(d), maxTensors)
	}
	return count{add(c.objects, by.objects), add(c.bytes, by.bytes)}
}

// fitLive makes the live bytes of the classes add up to a total. The sample is least certain about
// classes of which it has few blocks, so fitLive changes those before classes whose blocks are all
// in the sample.
func (s *session) fitLive(classes []tensorClass, total uint64) {
	weights := make([]uint64, len(classes))
	for _, all := range [...]bool{false, true} {
		var sum, part uint64
		for class := range classes {
			n := min(classes[class].live.bytes, maxTensors-sum)
			sum += n
			weights[class] = 0
			if all || s.inclusion(class) < 1 {
				weights[class] = n
				part += n
			}
		}
		if sum == total {
			return
		}
		if part == 0 {
			continue
		}
		shares, _ := apportion(minus(total, sum-part), weights)
		for class, bytes := range shares {
			if weights[class] != 0 {
				classes[class].live = classes[class].live.scaled(bytes)
			}
		}
	}
	var sum uint64
	for class := range classes {
		sum += classes[class].live.bytes
	}
	if sum < total { // classes without a block in the sample
		c := &classes[0].live
		c.bytes += total - sum
		c.objects = max(c.objects, 1)
	}
}

// scaled returns a class with other bytes, and as many more or fewer objects.
func (c count) scaled(bytes uint64) count {
	if bytes == 0 || c.bytes == 0 {
		return count{min(bytes, 1), bytes}
	}
	objects := uint64(math.Round(float64(c.objects) * (float64(bytes) / float64(c.bytes))))
	return count{max(min(objects, maxTensors), 1), bytes}
}

func (p *heap) keepTold(t *tensors) {
	if t.atPeak.number != p.peak.number {
		t.atPeak = tellPeak{t.now, p.peak.number}
	}
	if t.atHigh.number != p.high.number {
		t.atHigh = tellHigh{t.now, p.high.number}
	}
}

// tellPeak is what an allocator had at the peak with that number, if it has changed since.
type tellPeak struct {
	now    toldTotals
	number uint32
}

// tellHigh is the same at a highest.
type tellHigh struct {
	now    toldTotals
	number uint64
}
