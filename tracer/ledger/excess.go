// SPDX-License-Identifier: Apache-2.0

package ledger

import "slices"

// excess bounds what NVML counts on a GPU in addition to the live bytes of the books. If a process
// allocates during a reading of NVML, the moment of the reading is unknown, and so are the live
// bytes then. But the difference hardly ever changes, so a few readings together bound it well.
type excess struct {
	low, high int64
	live      uint64 // live bytes at the latest reading, by the ordinals known then
	known     bool
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
