// SPDX-License-Identifier: Apache-2.0

package ledger

// stray is an allocation on an unknown device.
type stray struct {
	key     liveKey
	time    uint64
	context uint64
	tid     uint32
}

// Most strays of a process, and of all processes. If half of a process's strays still live, there
// is no room for more, and further ones stay on the unknown device.
const (
	maxStrays    = 1 << 14
	maxAllStrays = 1 << 18
)

// addStray remembers an allocation whose device may become known later.
func (l *Ledger) addStray(key liveKey, e *Event) {
	p := &l.procs[key.process]
	if !e.Kind.Owned() && e.Kind != Managed || key.space == memories || !l.roomForStray(p) {
		return
	}
	p.strays = append(p.strays, stray{key, e.Time, e.Context, e.TID})
	l.hold(tableStrays, p)
}

func (l *Ledger) roomForStray(p *process) bool {
	switch {
	case p.crowded:
		p.beyond[tableStrays]++
	case len(p.strays) >= maxStrays:
		l.dropStrays(p)
		p.crowded = len(p.strays) > maxStrays/2
	case !l.room(tableStrays, p):
		l.dropStrays(p)
		p.crowded = !l.room(tableStrays, p)
	}
	return !p.crowded
}

// dropStrays forgets strays that have ended.
func (l *Ledger) dropStrays(p *process) {
	l.spend(64*len(p.strays) + 1)
	rest := p.strays[:0]
	for _, x := range p.strays {
		if _, ok := l.strayEntry(&x); ok {
			rest = append(rest, x)
		}
	}
	l.setStrays(p, rest)
}

// setStrays replaces the strays of a process by fewer.
func (l *Ledger) setStrays(p *process, rest []stray) {
	l.giveAll(tableStrays, p, len(p.strays)-len(rest))
	p.strays = rest
}

// strayEntry returns the entry of a stray, and whether it still lives on an unknown device.
func (l *Ledger) strayEntry(x *stray) (*entry, bool) {
	n, ok := l.live[x.key]
	if !ok {
		return nil, false
	}
	b := l.entries.at(n)
	return b, b.time == x.time && l.sites[b.site].device == UnknownDevice
}

// moveStrays moves strays that match to a device, and returns their bytes.
func (l *Ledger) moveStrays(p *process, device int32, match func(*stray) bool) (bytes uint64) {
	l.spend(64 * len(p.strays))
	rest := p.strays[:0]
	for _, x := range p.strays {
		b, ok := l.strayEntry(&x)
		switch {
		case !ok:
		case !match(&x):
			rest = append(rest, x)
		default:
			bytes += b.size
			if b.extra != 0 && l.sites[b.site].kind == Async {
				l.movePool(x.key.process, b, device)
			}
			l.move(x.key, device)
		}
	}
	l.setStrays(p, rest)
	p.crowded = false
	return bytes
}

// movePool moves an allocation from the default pool of the unknown device to that of the device.
func (l *Ledger) movePool(process uint32, b *entry, device int32) {
	switch x := &l.pools[b.extra]; {
	case x.device != UnknownDevice:
		return
	case x.handle != 0:
		x.latest = device
		return
	}
	_, n := l.poolFor(process, 0, device)
	if n == 0 {
		return
	}
	x := &l.pools[b.extra]
	x.objects--
	x.used -= b.size
	x.reserve -= b.size
	x.chunks.remove(b.address, b.size)
	l.pools[n].add(b.address, b.size)
	b.extra = n
}

// learn books which device was current in a thread since a time: the thread's allocations since
// then without a device were there. If it had pushed contexts, only those of the known context
// were.
func (l *Ledger) learn(e *Event) {
	p := &l.procs[l.instance(e.PID, e.Time)]
	if uint32(e.Device) >= maxDevices || p.purged {
		return
	}
	l.moveStrays(p, e.Device, func(x *stray) bool {
		if x.context != 0 && x.context == e.Context {
			return true // in any thread
		}
		return x.tid == e.TID && x.time >= e.Address && x.time <= e.Time && x.context == 0 && (e.Context == 0 || e.Size == 0)
	})
}

// learnContext moves the allocations of a context to its device.
func (l *Ledger) learnContext(p *process, context uint64, device int32) {
	if context != 0 && len(p.strays) > 0 && !p.purged {
		l.moveStrays(p, device, func(x *stray) bool { return x.context == context })
	}
}
