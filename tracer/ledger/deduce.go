// SPDX-License-Identifier: Apache-2.0

package ledger

// deduce moves strays to the only GPU whose growth since the baselines fits them: it grew by at
// least their bytes, and by at most a page more for each. It needs good readings of all GPUs of
// this moment.
func (p *contexts) deduce(time uint64) {
	gpus := p.listed()
	if len(p.strays) == 0 || len(gpus) < 2 {
		return
	}
	p.spend(128 * len(p.strays))
	var since uint64
	for _, r := range gpus {
		if r.taken != time || !r.settled {
			return
		}
		since = max(since, r.firstAt)
	}
	grows := func(x *stray) bool {
		b, ok := p.strayEntry(x)
		return ok && b.time > since && p.sites[b.site].kind.Owned()
	}
	var strays count
	for i := range p.strays {
		if x := &p.strays[i]; grows(x) {
			b, _ := p.strayEntry(x)
			strays.objects++
			strays.bytes += b.size
		}
	}
	uuids := p.uuids()
	device := int32(UnknownDevice)
	for _, r := range gpus {
		switch grown := r.grown(uuids); {
		case grown < int64(max(strays.bytes, driverPage)):
		case grown > int64(strays.bytes+strays.objects*driverPage) || device != UnknownDevice:
			return // several GPUs could have them
		default:
			if device = ordinalOf(uuids, r.uuid); device < 0 {
				return
			}
		}
	}
	if device != UnknownDevice && strays.bytes >= driverPage {
		p.Deduced += p.moveStrays(device, grows)
	}
}

// grown returns how much more of the GPU is used than the baseline and the books explain.
func (r *reading) grown(uuids []string) int64 {
	live, first := sumOn(r.uuid, r.lastLive, uuids, ""), sumOn(r.uuid, r.firstLive, uuids, "")
	return int64(r.last-r.first) - (live.least() - first.least())
}
