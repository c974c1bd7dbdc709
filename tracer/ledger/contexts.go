// SPDX-License-Identifier: Apache-2.0

package ledger

import "fmt"

// contexts has the contexts of a process, and what was made in them.
type contexts struct {
	poolSet
	primaries []primary // by device; few
	releases  [ContextWasReset + 1]Release
	objects   objects
	strays    []stray // allocations on unknown devices, oldest first
	crowded   bool    // strays has no room for more
}

// primary is the primary context of one device of a process.
type primary struct {
	context    uint64 // 0: unknown
	device     int32
	references uint64
	whole      bool // all its references were seen
	orphaned   bool // it is not whole, and was released, perhaps for the last time
}

// primaryOf returns the primary context of a device, nil if there is none.
func (p *contexts) primaryOf(device int32) *primary {
	for i := range p.primaries {
		if p.primaries[i].device == device {
			return &p.primaries[i]
		}
	}
	return nil
}

func (p *contexts) addPrimary(device int32) *primary {
	p.primaries = append(p.primaries, primary{device: device})
	return &p.primaries[len(p.primaries)-1]
}

// deviceOf returns the device of a context.
func (p *contexts) deviceOf(context uint64) int32 {
	for i := range p.primaries {
		if p.primaries[i].context == context {
			return p.primaries[i].device
		}
	}
	return p.objects.derivedFrom(context)
}

// contextDevice returns the device of an event of a primary context. If the event does not name it,
// that is the only device of the process.
func (p *contexts) contextDevice(e *Event) int32 {
	if uint32(e.Device) < maxDevices {
		return e.Device
	}
	device, several := p.usedDevice()
	if several {
		return UnknownDevice
	}
	for i := range p.primaries {
		if d := p.primaries[i].device; d != device {
			if device != UnknownDevice {
				return UnknownDevice
			}
			device = d
		}
	}
	if device == UnknownDevice {
		device, _ = p.onlyGPU(p.uuids())
	}
	return device
}

func (p *contexts) contextRetain(e *Event) {
	device := e.Device
	if uint32(device) >= maxDevices {
		if device = p.deviceOf(e.Context); device == UnknownDevice {
			return
		}
	}
	c := p.primaryOf(device)
	if c == nil {
		c = p.addPrimary(device)
		c.whole = p.Begin > p.options.Begin
	}
	if e.Context != 0 {
		c.context = e.Context
	}
	if c.references == 0 && c.whole && e.API != "" {
		p.createObject(DriverContext, c.context, device, e)
	}
	c.references++
	c.orphaned = false
	p.learnContext(c.context, device)
}

func (p *contexts) contextRelease(e *Event) {
	p.spend(len(p.totals) + len(p.readings) + len(p.devices))
	device := p.contextDevice(e)
	if device == UnknownDevice {
		p.warnOf(fmt.Sprintf("process %d released the primary context of an unknown GPU: its allocations are still shown as live", e.PID))
		return
	}
	c := p.primaryOf(device)
	if c == nil {
		c = p.addPrimary(device)
	}
	if c.references > 0 {
		c.references--
	}
	switch {
	case c.references > 0:
	case c.whole:
		p.endPrimary(c, ContextReleased, e.Time)
	default:
		c.orphaned = true
		p.warnOf(fmt.Sprintf("process %d released a primary context from before the attach: its allocations are shown as live until NVML lists the process on no GPU", e.PID))
	}
}

func (p *contexts) contextReset(e *Event) {
	p.spend(len(p.totals) + len(p.readings) + len(p.devices))
	device := p.contextDevice(e)
	if device == UnknownDevice {
		p.warnOf(fmt.Sprintf("process %d reset an unknown GPU: its allocations are still shown as live", e.PID))
		return
	}
	c := p.primaryOf(device)
	if c == nil {
		c = p.addPrimary(device)
	}
	p.endPrimary(c, ContextWasReset, e.Time)
}

// endPrimary ends the allocations of a primary context, and those on its device whose context is
// unknown.
func (p *contexts) endPrimary(c *primary, cause Cause, time uint64) {
	only, _ := p.onlyGPU(p.uuids())
	// Without a handle, it is older than the attach, as are all contexts that were never retained
	// since.
	nameless := c.context == 0 && !(p.Begin > p.options.Begin)
	p.endSites(cause, time, func(s *site) bool {
		if d := p.objects.derivedFrom(s.context); d != UnknownDevice {
			return d == c.device
		}
		if s.context != 0 && c.context != 0 {
			return s.context == c.context
		}
		here := s.device == c.device || s.device == UnknownDevice && only == c.device
		return here && (s.context == 0 || nameless && p.deviceOf(s.context) == UnknownDevice)
	})
	p.spend(32 * len(p.objects.live))
	p.objects.endIn(c.context, c.device, time)
	c.references, c.whole, c.orphaned = 0, true, false // the next retain makes a new one
}

func (p *contexts) contextDestroy(e *Event) {
	p.endSites(ContextDestroyed, e.Time, func(s *site) bool { return s.context == e.Context })
	p.spend(32 * len(p.objects.live))
	p.objects.endIn(e.Context, UnknownDevice, e.Time)
}

// endSites ends all allocations of the sites that match, except physical memory and aliases of it,
// which no context owns, and blocks and the driver's own objects, whose end is reported.
// Allocations younger than time, when the ending call began, belong to another context with the
// same handle.
func (p *contexts) endSites(cause Cause, time uint64, match func(*site) bool) {
	r := &p.releases[cause]
	p.endings++
	p.spend(8 * len(p.sites))
	for s := range p.all() {
		if s.space == memories || s.space == Physical || s.space == Blocks || s.space == Objects || !match(s) {
			continue
		}
		s.ended = p.endings
		counted := s.kind != aliased && s.kind != Imported // imported memory was not freed
		if counted && s.early.objects > 0 {
			r.Time = max(r.Time, time)
			r.Objects += s.early.objects
			r.Bytes += s.early.bytes
		}
		s.early = count{}
		for s.first != 0 {
			b := p.entries.at(s.first)
			if b.time > time {
				break
			}
			if counted {
				r.Objects++
				r.Bytes += b.size
				r.Time = max(r.Time, time)
			}
			p.drop(liveKey{b.address, s.space}, s.first, time)
		}
	}
}

// endOrphans ends the allocations of primary contexts whose last release may have been seen, once
// NVML does not list the process on any GPU any more.
func (p *contexts) endOrphans(time uint64) {
	if p.isListed() {
		return
	}
	for i := range p.primaries {
		if c := &p.primaries[i]; c.orphaned && len(p.readings) > 0 {
			p.endPrimary(c, ContextReleased, time)
		}
	}
}
