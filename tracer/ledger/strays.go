// SPDX-License-Identifier: Apache-2.0

package ledger

// stray is an allocation on an unknown device.
type stray struct {
	key     liveKey
	time    uint64
	context uint64
	tid     uint32
}

// addStray remembers an allocation whose device may become known later.
func (p *contexts) addStray(key liveKey, e *Event) {
	if !e.Kind.Owned() && e.Kind != Managed || key.space == memories || !p.roomForStray() {
		return
	}
	p.strays = append(p.strays, stray{key, e.Time, e.Context, e.TID})
	p.hold(tableStrays)
}

func (p *contexts) roomForStray() bool {
	switch {
	case p.crowded:
		p.beyond[tableStrays]++
	case len(p.strays) >= maxStrays:
		p.dropStrays()
		p.crowded = len(p.strays) > maxStrays/2
	case !p.room(tableStrays):
		p.dropStrays()
		p.crowded = !p.room(tableStrays)
	}
	return !p.crowded
}

// dropStrays forgets strays that have ended.
func (p *contexts) dropStrays() {
	p.spend(64*len(p.strays) + 1)
	rest := p.strays[:0]
	for _, x := range p.strays {
		if _, ok := p.strayEntry(&x); ok {
			rest = append(rest, x)
		}
	}
	p.setStrays(rest)
}

// setStrays replaces the strays of a process by fewer.
func (p *contexts) setStrays(rest []stray) {
	p.giveAll(tableStrays, len(p.strays)-len(rest))
	p.strays = rest
}

// strayEntry returns the entry of a stray, and whether it still lives on an unknown device.
func (p *contexts) strayEntry(x *stray) (*entry, bool) {
	n, ok := p.live[x.key]
	if !ok {
		return nil, false
	}
	b := p.entries.at(n)
	return b, b.time == x.time && p.sites[b.site].device == UnknownDevice
}

// moveStrays moves strays that match to a device, and returns their bytes.
func (p *contexts) moveStrays(device int32, match func(*stray) bool) (bytes uint64) {
	p.spend(64 * len(p.strays))
	rest := p.strays[:0]
	for _, x := range p.strays {
		b, ok := p.strayEntry(&x)
		switch {
		case !ok:
		case !match(&x):
			rest = append(rest, x)
		default:
			bytes += b.size
			if b.extra != 0 && p.sites[b.site].kind == Async {
				p.movePool(b, device)
			}
			p.move(x.key, device)
		}
	}
	p.setStrays(rest)
	p.crowded = false
	return bytes
}

// learn books which device was current in a thread since a time: the thread's allocations since
// then without a device were there. If it had pushed contexts, only those of the known context
// were.
func (p *contexts) learn(e *Event) {
	if uint32(e.Device) >= maxDevices || p.purged {
		return
	}
	p.moveStrays(e.Device, func(x *stray) bool {
		if x.context != 0 && x.context == e.Context {
			return true // in any thread
		}
		return x.tid == e.TID && x.time >= e.Address && x.time <= e.Time && x.context == 0 && (e.Context == 0 || e.Size == 0)
	})
}

// learnContext moves the allocations of a context to its device.
func (p *contexts) learnContext(context uint64, device int32) {
	if context != 0 && len(p.strays) > 0 && !p.purged {
		p.moveStrays(device, func(x *stray) bool { return x.context == context })
	}
}

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
