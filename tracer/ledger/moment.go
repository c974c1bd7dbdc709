// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"math"
)

// toldTotals is what an allocator had after its newest report that told it, by an event or by a reading.
type toldTotals struct {
	time                      uint64
	allocated, reserved, live uint64
	known                     bool // a reading, or an event
	begun                     bool // live is right, as nothing was reported since the attach; events may tell none in older recordings
	liveKnown                 bool // else live follows from the classes
}

// highest is the highest value there was.
type highest struct{ bytes, time uint64 }

func (h *highest) reach(bytes, time uint64) {
	if bytes > h.bytes {
		h.bytes, h.time = bytes, time
	}
}

// tellTotals takes the totals that an event of an allocator has.
func (l *Ledger) tellTotals(e *Event) {
	device := tensorDevice(e.Device)
	if e.Told == 0 || e.Space != Blocks || device < 0 {
		return
	}
	if n := l.instance(e.PID, e.Time); !l.procs[n].purged {
		p := &l.procs[n]
		l.tell(&p.tensors[l.tensorsOn(p, device)], e)
	}
}

// tell takes the totals of an event. One that does not say what is live leaves what is older than the attach as it was:
// the kernel half sends Totals when that has changed.
func (l *Ledger) tell(t *tensors, e *Event) {
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
	l.spend(len(t.changes))
	if len(t.changes) > 0 && t.now.known {
		l.learnSegments(t, now.reserved, e.Time)
	}
	t.now = now
	t.peak.reach(now.allocated, e.Time)
	if now.liveKnown {
		t.livePeak.reach(now.live, e.Time)
	}
	if len(t.changes) > 0 {
		t.forgetChanges()
	}
}

// learnSegments takes a driver allocation as the allocator's by whose bytes it has more reserved than before: its stack may be on its way.
func (l *Ledger) learnSegments(t *tensors, reserved, time uint64) {
	grown := int64(reserved - t.now.reserved)
	var unknown []segmentChange
	var sum int64
	for _, c := range t.changes {
		s := &l.sites[c.site]
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
	fitting := 0 // alone
	for _, c := range unknown {
		if grown == int64(c.bytes) {
			fitting++
		}
	}
	for _, c := range unknown {
		if grown == sum || fitting == 1 && grown == int64(c.bytes) {
			l.sites[c.site].segment = true
		}
	}
}

// readTotals takes those of a reading, unless an event has told newer ones.
func (t *tensors) readTotals(x *TensorTotals, time uint64) {
	r := &t.reading
	if cmp.Or(x.Reported, time) < t.now.time {
		return
	}
	t.now = toldTotals{time: x.Reported, allocated: r.allocated, reserved: r.reserved, live: r.live.bytes, known: true, liveKnown: x.Live != 0 || x.PeakTime != 0} // PeakTime: each report was looked at
	t.forgetChanges()
}

// sampleSince is what the sample did since the last reading, by size class.
type sampleSince struct {
	classes *[SizeClasses]struct{ live, freed signedCount }
}

type signedCount struct{ objects, bytes int64 }

// sampleChanged notes a block of the sample that was allocated or freed, if the reading does not know of it.
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

// moment is what an allocator has as of the newest event. Allocated, reserved and the live bytes are exact where events tell
// them, and as of the last reading where they do not; what else changed since then follows from the sample, and so is exact where
// all blocks are in it.
type moment struct {
	allocated, reserved uint64
	live, freed         count         // sums over classes
	classes             []tensorClass // by SizeClass; nil: nothing but the sample is known
}

func (l *Ledger) moment(t *tensors) moment {
	if !t.reading.taken && !t.now.liveKnown {
		return moment{allocated: t.now.allocated, reserved: t.now.reserved, live: t.live, freed: t.freed}
	}
	m := moment{allocated: t.now.allocated, reserved: t.now.reserved, classes: make([]tensorClass, SizeClasses)}
	for class := range m.classes {
		c := &m.classes[class]
		*c = t.reading.class(class)
		if t.since.classes != nil && t.now.liveKnown {
			x, p := &t.since.classes[class], l.inclusion(class)
			c.live = c.live.changed(&x.live, p)
			c.freed = c.freed.changed(&x.freed, p)
		}
	}
	if t.now.liveKnown && t.now.time > t.reading.reported {
		l.fitLive(m.classes, t.now.live)
	}
	for class := range m.classes {
		m.live.take(&m.classes[class].live)
		m.freed.take(&m.classes[class].freed)
	}
	return m
}

// changed adds what the sample of a class of probability p did.
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

// fitLive makes the live bytes of the classes add up to a total. What the sample says of a class is most in doubt where it has
// few of its blocks, so those are changed before the ones that it has all blocks of.
func (l *Ledger) fitLive(classes []tensorClass, total uint64) {
	weights := make([]uint64, len(classes))
	for _, all := range [...]bool{false, true} {
		var sum, part uint64
		for class := range classes {
			n := min(classes[class].live.bytes, maxTensors-sum)
			sum += n
			weights[class] = 0
			if all || l.inclusion(class) < 1 {
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
	if sum < total { // of blocks of which none is in the sample
		c := &classes[0].live
		c.bytes += total - sum
		c.objects = max(c.objects, 1)
	}
}

// scaled gives a class other bytes, and as many more or fewer objects.
func (c count) scaled(bytes uint64) count {
	if bytes == 0 || c.bytes == 0 {
		return count{min(bytes, 1), bytes}
	}
	objects := uint64(math.Round(float64(c.objects) * (float64(bytes) / float64(c.bytes))))
	return count{max(min(objects, maxTensors), 1), bytes}
}
