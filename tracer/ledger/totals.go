// SPDX-License-Identifier: Apache-2.0

package ledger

import "fmt"

// ClassTotals counts the blocks of one size class that were allocated since the attach.
type ClassTotals struct{ Allocs, AllocBytes, Frees, FreeBytes uint64 }

// TensorTotals is what the kernel half has counted of one allocator: of every block, not of the sample only.
type TensorTotals struct {
	PID                    uint32
	Device                 int32         // CUDA ordinal, or CPUDevice
	Reported               uint64        // time of the allocator's latest report; 0: unknown
	Allocated, Reserved    uint64        // the allocator's own totals after its latest report, 0 where it tells none; of CPUDevice not used
	Live                   uint64        // bytes of Classes that are live, after the same report; 0 where nobody counted them
	Peak, PeakTime         uint64        // highest Allocated since the attach and a time when it was that, 0 where nobody looked at each report; without totals: highest Live
	OlderFrees, OlderBytes uint64        // freed blocks that were allocated before the attach
	Unbooked               uint64        // blocks that had no room, and are in no class
	Classes                []ClassTotals // by SizeClass
}

// tensorReading is a TensorTotals as the books use it.
type tensorReading struct {
	taken               bool
	reported            uint64 // what was reported by then is in it
	allocated, reserved uint64
	olderFreed          uint64
	live, freed         count // sums over classes
	classes             []tensorClass
}

// tensorClass is what one size class exactly has.
type tensorClass struct{ live, freed count }

// setTensors takes over a reading of the allocators' totals, made at time. What is not listed stays as it was
// read last, also after the end of its process. A pid means its newest process; those that were never traced are left out.
//
// There is a warning where more is live than the allocator says it has given out. What a busy process allocated
// and freed since the reading before may be half in a reading, so that much is let pass until the process pauses or ends.
func (l *Ledger) setTensors(time uint64, totals []TensorTotals) {
	for i := range totals {
		if l.full() {
			return
		}
		x := &totals[i]
		n, ok := l.byPID[x.PID]
		if !ok || l.procs[n].purged {
			continue
		}
		p := &l.procs[n]
		t := &p.tensors[l.tensorsOn(p, tensorDevice(x.Device))]
		before := t.reading
		t.reading = newReading(x, before.classes)
		r := &t.reading
		t.since = sampleSince{}
		if r.olderFreed != before.olderFreed {
			t.olderFreed.record(l.options.Begin, time, r.olderFreed)
		}
		t.livePeak.reach(r.live.bytes, time)
		if t.device < 0 {
			r.allocated, r.reserved = 0, 0
			t.peak = t.livePeak
			continue
		}
		t.readTotals(x, time)
		if x.PeakTime != 0 && r.reserved != 0 {
			t.peak.reach(min(x.Peak, maxTensors), x.PeakTime)
		} else if x.PeakTime != 0 {
			t.livePeak.reach(min(x.Peak, maxTensors), x.PeakTime)
		}
		t.peak.reach(r.allocated, time)
		if !t.first.seen && r.reserved != 0 { // its event was lost, or is on its way
			t.first = firstReport{time: time, reserved: r.reserved, driver: l.driverLive(p, t.device), seen: true}
		}
		l.doubtTotals(p, t, &before)
		if x.Unbooked != 0 && !t.unbooked {
			t.unbooked = true
			l.warnOf(p.PID, fmt.Sprintf("process %d has more live tensors on cuda:%d than can be followed: the rest is shown as allocated before the attach", p.PID, t.device))
		}
	}
}

func (l *Ledger) doubtTotals(p *process, t *tensors, last *tensorReading) {
	r := &t.reading
	excess := minus(r.live.bytes, r.allocated)
	if t.first.final {
		// What is older than the attach can only become less.
		older := minus(t.first.allocated, r.olderFreed)
		excess = max(excess, minus(r.allocated, r.live.bytes+older))
	}
	if excess == 0 || r.reserved == 0 || t.contradicted {
		return
	}
	freed := minus(r.freed.bytes, last.freed.bytes)
	churn := 2*freed + minus(r.live.bytes, last.live.bytes)
	if p.End != 0 || last.taken && excess > churn { // not just a report between two looks
		t.contradicted = true
		before := ""
		if older := minus(t.first.allocated, r.olderFreed); older > 0 {
			before = fmt.Sprintf(", and %d bytes before it", older)
		}
		l.warnOf(p.PID, fmt.Sprintf("process %d: PyTorch's allocator says that %d bytes are allocated on cuda:%d, but tensors of %d bytes were allocated since the attach and not freed%s",
			p.PID, r.allocated, t.device, r.live.bytes, before))
	}
}

// newReading bounds what was read; reuse has room for classes.
func newReading(x *TensorTotals, reuse []tensorClass) tensorReading {
	r := tensorReading{taken: true, reported: x.Reported, allocated: min(x.Allocated, maxTensors), reserved: min(x.Reserved, maxTensors), olderFreed: x.OlderBytes, classes: reuse[:0]}
	for _, c := range x.Classes[:min(len(x.Classes), SizeClasses)] {
		k := tensorClass{live: count{minus(c.Allocs, c.Frees), minus(c.AllocBytes, c.FreeBytes)}}
		k.freed = count{c.Allocs - k.live.objects, c.AllocBytes - k.live.bytes}
		r.live.take(&k.live)
		r.freed.take(&k.freed)
		r.classes = append(r.classes, k)
	}
	return r
}

// take adds a part to a sum, cut so that the sum stays within bounds.
func (sum *count) take(part *count) {
	part.objects = min(part.objects, maxTensors-sum.objects)
	part.bytes = min(part.bytes, maxTensors-sum.bytes)
	sum.objects += part.objects
	sum.bytes += part.bytes
}

// class returns what a size class exactly has.
func (r *tensorReading) class(n int) tensorClass {
	if n < len(r.classes) {
		return r.classes[n]
	}
	return tensorClass{}
}

// setSampling says how likely a block of each size class is in the sample. Classes that p
// does not have are sampled completely, as all are at first.
func (l *Ledger) setSampling(p []float64) {
	l.sampling = append(l.sampling[:0], p[:min(len(p), SizeClasses)]...)
	for i, x := range l.sampling {
		if !(x > 0 && x <= 1) {
			l.sampling[i] = 1
		}
	}
}

// setSampleRate says how tensors are sampled, for snapshots.
func (l *Ledger) setSampleRate(r SampleRate) { l.rate = r }

func (l *Ledger) inclusion(class int) float64 {
	if class < len(l.sampling) {
		return l.sampling[class]
	}
	return 1
}

func minus(a, b uint64) uint64 { return max(a, b) - b }
