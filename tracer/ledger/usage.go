// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"strings"
)

// A rough reading sets no baseline for this long after the first one, ns.
const roughAfter = 5e9

// settleFor is how long a lower baseline may replace that of a process younger than the session,
// ns.
const settleFor = 5e9

// setUsage books what NVML reports of the process on one of its GPUs.
func (p *contexts) setUsage(time uint64, u *Usage, gpus []GPU) {
	p.spend(16 * (len(p.readings) + len(p.totals) + len(p.tensors) + len(p.devices)))
	r := p.reading(u.UUID)
	if r == nil {
		if len(p.readings) >= maxDevices {
			p.warnOf(fmt.Sprintf("process %d is on more than %d GPUs: its usage of the rest is left out", p.PID, maxDevices))
			return
		}
		p.readings = append(p.readings, reading{uuid: u.UUID})
		r = &p.readings[len(p.readings)-1]
		r.began = time
	}
	r.present, r.peak = true, max(r.peak, u.Bytes)
	r.order = slices.IndexFunc(gpus, func(g GPU) bool { return g.UUID == u.UUID })
	if r.order >= 0 {
		r.model = gpus[r.order].Name
	}
	live := p.fit(r, u)
	if !r.settled {
		r.first, r.firstLive = u.Bytes, append(r.firstLive[:0], live...)
		p.firstTensors(r, time)
		p.objects.settle(ordinalOf(p.uuids(), r.uuid))
		r.settled = (p.wasThere(r) || p.allocatedOn(r)) && (!u.Rough || time-r.began >= roughAfter)
		r.settledAt, r.firstAt = time, time
	} else if !p.wasThere(r) && time-r.settledAt < settleFor && !u.Rough {
		p.settleLower(r, u.Bytes, time)
	}
	p.keepUsage(r)
	r.last, r.lastLive, r.taken = u.Bytes, live, time
	p.tensorsAtUsage(time)
}

// wasThere reports whether a process may have been on a GPU before the attach.
func (p *gpuMap) wasThere(r *reading) bool {
	return p.Begin <= p.firstUsage && r.began == p.firstUsage
}

// allocatedOn reports whether a process may have allocated memory on a GPU, so that its context
// there is complete.
func (p *gpuMap) allocatedOn(r *reading) bool {
	uuids := p.uuids()
	return slices.ContainsFunc(p.totals, func(t runningTotal) bool {
		switch {
		case t.Kind == Internal: // of the context itself, perhaps
			return false
		case len(p.readings) == 1 || t.Device == UnknownDevice:
			return true
		case t.Device < 0 || t.Kind.OnHost():
			return false
		}
		return int(t.Device) >= len(uuids) || uuids[t.Device] == "" || uuids[t.Device] == r.uuid
	})
}

// moved notes that an allocation which existed at a reading is on another device than was known
// then.
func (r *reading) moved(from *site, device int32, b *entry, rounding int64) {
	if b.time <= r.firstAt {
		r.firstLive = moveLive(r.firstLive, from, device, b.size, rounding)
	}
	if b.time <= r.taken {
		r.lastLive = moveLive(r.lastLive, from, device, b.size, rounding)
	}
	if b.time <= r.atPeak.taken && r.atPeak.taken != r.taken {
		r.atPeak.lastLive = moveLive(r.atPeak.lastLive, from, device, b.size, rounding)
	}
}

func moveLive(list []deviceLive, from *site, device int32, size uint64, more int64) []deviceLive {
	on := func(device int32) int {
		return slices.IndexFunc(list, func(d deviceLive) bool { return d.device == device && d.kind == from.kind })
	}
	n := on(from.device)
	if n < 0 || list[n].bytes < size {
		return list // it was freed and booked again meanwhile
	}
	list[n].bytes -= size
	list[n].known -= more
	if n = on(device); n >= 0 {
		list[n].bytes += size
		list[n].known += more
		return list
	}
	return append(list, deviceLive{device: device, kind: from.kind, bytes: size, rounding: rounding{known: more}})
}

// tensorsAtUsage keeps the state of PyTorch's allocators at a reading.
func (p *gpuMap) tensorsAtUsage(time uint64) {
	for i := range p.tensors {
		if t := &p.tensors[i]; t.device >= 0 && t.now.reserved != 0 {
			t.atUsage = firstReport{
				time: time, reserved: p.reserved(t, func(d int32) bool { return d == t.device || d == UnknownDevice }),
				driver: p.driverLive(t.device), seen: true,
			}
		}
	}
}

// settleLower makes a reading the first one if it has a lower baseline: the one before included
// memory of a call that returned later. Nothing of the process but its context is older than the
// session.
func (p *contexts) settleLower(r *reading, usage, time uint64) {
	for i := range p.totals {
		if t := &p.totals[i]; t.Kind == Graph && t.LiveBytes != 0 {
			return // an alloc node has no memory before the launch of its graph
		}
	}
	uuids := p.uuids()
	_, only := p.onlyGPU(uuids)
	now := p.deviceLive(nil)
	live, before := uint64(sumOn(r.uuid, now, uuids, only).least()), uint64(sumOn(r.uuid, r.firstLive, uuids, only).least())
	if usage >= live && r.first > before && usage-live < r.first-before {
		r.first, r.firstLive, r.firstAt = usage, now, time
		p.firstTensors(r, time)
		p.objects.settle(ordinalOf(uuids, r.uuid))
	}
}

// firstTensors keeps the state of PyTorch's allocator at the moment of the baseline: memory of the
// allocator is subtracted from the baseline as it was then.
func (p *gpuMap) firstTensors(r *reading, time uint64) {
	device := ordinalOf(p.uuids(), r.uuid)
	for i := range p.tensors {
		t := &p.tensors[i]
		if t.device < 0 || t.now.reserved == 0 || t.device != device && (device >= 0 || len(p.readings) > 1) {
			continue
		}
		t.first.time, t.first.reserved = time, p.reserved(t, func(d int32) bool { return d == t.device })
		t.first.driver, t.first.seen = p.driverLive(t.device), true
	}
}

// deviceLive appends the live bytes that the driver counts as the process's own, by device.
func (p *poolSet) deviceLive(dst []deviceLive) []deviceLive {
	for i := range p.totals {
		if t := &p.totals[i]; t.Device != allDevices && t.Kind.Owned() {
			dst = append(dst, deviceLive{device: t.Device, kind: t.Kind, bytes: t.LiveBytes, rounding: p.roundingOf(t)})
		}
	}
	return p.poolsHold(append(dst, p.atEnd...))
}

// heldOn is what the books have on one GPU.
type heldOn struct {
	bytes uint64
	rounding
}

// least returns what the driver certainly holds.
func (x heldOn) least() int64 { return int64(x.bytes) + max(x.known, 0) }

// sumOn returns the sum of what is on a GPU; only is the GPU that alone carries the process, or "".
func sumOn(uuid string, live []deviceLive, uuids []string, only string) (sum heldOn) {
	for _, d := range live {
		at := only
		if at == "" && d.device >= 0 && int(d.device) < len(uuids) {
			at = uuids[d.device]
		}
		if at == uuid {
			sum.bytes += d.bytes
			sum.rounding.add(d.rounding)
		}
	}
	return sum
}

// balances compares usage and books of one process; number is its index in the snapshot.
func (p *poolSet) balances(number int) []Balance {
	uuids := p.uuids()
	only, onlyUUID := p.onlyGPU(uuids)
	on := func(uuid string, live []deviceLive) heldOn { return sumOn(uuid, live, uuids, onlyUUID) }
	gone := !p.isListed()
	var list []Balance
	for i := range p.readings {
		r := &p.readings[i]
		b := Balance{Process: number, UUID: r.uuid, Device: ordinalOf(uuids, r.uuid), Usage: r.last, Peak: r.peak, Time: r.taken, Doubt: r.excess.width()}
		if r.uuid == onlyUUID {
			b.Device = only
		}
		now, then := on(r.uuid, p.deviceLive(nil)), on(r.uuid, r.lastLive)
		if p.past {
			now.rounding = then.rounding
		}
		if p.End == 0 && !r.present { // its context has ended, or is elsewhere
			b.Usage, b.Doubt = 0, 0
			b.Unlisted = now.bytes > 0 || gone && p.holdsMemory()
			list = append(list, b)
			continue
		}
		b.Baseline = r.baseline(on(r.uuid, r.firstLive))
		b.compare(now, then)
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b Balance) int { return strings.Compare(a.UUID, b.UUID) })
	return list
}

// baseline returns the usage at the first reading without what the books had then. A driver that
// has no room for the rounding does not round so.
func (r *reading) baseline(first heldOn) uint64 {
	if least := uint64(first.least()); least <= r.first {
		return r.first - least
	}
	return minus(r.first, first.bytes)
}

// compare sets the figures that follow from Usage, Baseline and what the books have now and had at
// the reading. NVML's figure decides how much the driver rounds up by, within what is possible.
func (b *Balance) compare(now, then heldOn) {
	b.Live, b.Idle = then.bytes, then.most
	rest, known := int64(b.Usage-b.Baseline-b.Live), max(then.known, 0)
	rounded := max(min(rest, known+int64(then.most)), 0)
	b.Gap = rest - rounded
	b.Rounding = uint64(rounded)
	// What was perhaps held stays so until the next reading, and what was certainly not.
	held := max(now.known, 0) + min(max(rounded-known, 0), int64(now.most)) - max(known-rounded, 0)
	b.RoundingSince = max(held, 0) - rounded
	b.Since = int64(now.bytes-b.Live) + b.RoundingSince
}

func (x *excess) width() uint64 { return uint64(x.high - x.low) }

// narrow tightens the bounds by one reading. If the reading contradicts the others, something else
// has changed.
func (x *excess) narrow(low, high int64) {
	if both := max(x.low, low) <= min(x.high, high); x.known && both {
		x.low, x.high = max(x.low, low), min(x.high, high)
		return
	}
	x.low, x.high, x.known = low, high, true
}

// fit returns the live bytes at a reading of NVML.
func (p *poolSet) fit(r *reading, u *Usage) []deviceLive {
	live := p.deviceLive(nil)
	least, most := slices.Clone(live), slices.Clone(live)
	if u.Rough && p.opened {
		p.extremes(least, most)
	}
	uuids := p.uuids()
	_, only := p.onlyGPU(uuids)
	on := func(list []deviceLive) int64 {
		return sumOn(r.uuid, list, uuids, only).least()
	}
	// other ordinals are known to mean this GPU now
	if r.taken != 0 && uint64(on(r.lastLive)) != r.excess.live {
		r.excess = excess{}
	}
	low, high, usage := on(least), on(most), int64(u.Bytes)
	x := &r.excess
	x.narrow(usage-high, usage-low)
	guess := (x.low + x.high) / 2
	switch {
	case r.settled: // the least possible is unexplained
		guess = min(max(int64(r.first)-on(r.firstLive), x.low), x.high)
	case !p.wasThere(r) && p.knowsContext(): // nothing is
		guess = min(max(0, x.low), x.high)
	}
	if want := min(max(usage-guess, low), high); high > low {
		share := float64(want-low) / float64(high-low)
		for i := range live {
			live[i].bytes = least[i].bytes + uint64(float64(most[i].bytes-least[i].bytes)*share)
		}
	}
	x.live = uint64(on(live))
	return live
}

// extremes copies the least and the most live bytes since UsageOpened into two lists of deviceLive.
func (p *heap) extremes(least, most []deviceLive) {
	for i := range p.totals {
		t := &p.totals[i]
		if t.Device == allDevices || !t.Kind.Owned() {
			continue
		}
		if n := slices.IndexFunc(least, func(d deviceLive) bool { return d.device == t.Device && d.kind == t.Kind }); n >= 0 {
			least[n].bytes, most[n].bytes = min(t.low, t.LiveBytes), max(t.high, t.LiveBytes)
		}
	}
}
