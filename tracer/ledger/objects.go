// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/tracer/ledger/chunks"
)

// objects are the driver objects of a process.
type objects struct {
	live  map[objectKey]driverObject
	sites []objectSite // few: programs make contexts, modules and graphs from few stacks

	// By CUcontext or CUgreenCtx: the device whose primary context a green context stands for.
	greens, derived map[uint64]int32
}

type objectKey struct {
	handle uint64
	kind   Kind
}

type driverObject struct {
	time, bytes uint64
	context     uint64 // context of its creation
	site        uint32 // in objects.sites
}

type objectSite struct {
	stack                     uint64
	api                       string
	live, made, bytes, before uint64
	evicted, crowded          uint64 // Object.Evicted, Object.Crowded
	device                    int32
	kind                      Kind
}

// applyObject books an event of a driver object.
func (p *contexts) applyObject(e *Event) {
	if p.purged {
		return
	}
	switch e.Op {
	case ObjectCreate:
		p.createObject(e.Kind, e.Address, e.Device, e)
	case ObjectEnd:
		p.objects.end(objectKey{e.Address, e.Kind}, e.Time)
		p.countObjects()
	case GreenCreate:
		p.greenCreate(e)
	case GreenDestroy:
		p.greenDestroy(e)
	}
}

// createObject books a new driver object with the stack of its event.
func (p *contexts) createObject(kind Kind, handle uint64, device int32, e *Event) {
	if handle == 0 || p.purged {
		return
	}
	if uint32(device) >= maxDevices {
		device = UnknownDevice
	}
	x := &p.objects
	key := objectKey{handle, kind}
	// its end was not seen, or is reported after its handle was given out again
	x.end(key, math.MaxUint64)
	if kind == DriverContext {
		delete(x.derived, handle)
	}
	before := len(x.sites)
	p.spend(before)
	room := p.hasRoomFor(tableObjectSites, 0)
	n, stackless := x.site(objectSite{stack: e.Stack, api: e.API, device: device, kind: kind}, room)
	p.giveAll(tableObjectSites, before-len(x.sites))
	s := &x.sites[n]
	s.made++
	if stackless {
		s.crowded++
		p.beyond[tableObjectSites]++
		p.warnOf(fmt.Sprintf("process %d has driver objects from too many stacks: the rest are counted without stacks", p.PID))
	}
	if p.countObjects(); !p.room(tableObjects) {
		s.evicted++
		p.warnOf(fmt.Sprintf("process %d has too many driver objects: the rest are counted as made, but not as live", p.PID))
		return
	}
	p.hold(tableObjects)
	o := driverObject{time: e.Time, context: e.Context, site: n}
	if e.Op == ObjectCreate && e.Size <= maxSize && e.Size <= maxSum-s.bytes {
		o.bytes = e.Size
	}
	if x.live == nil {
		x.live = make(map[objectKey]driverObject)
	}
	x.live[key] = o
	s.live++
	s.bytes += o.bytes
}

// countObjects updates the count of live objects that a process holds.
func (p *contexts) countObjects() {
	p.giveAll(tableObjects, int(p.held[tableObjects])-len(p.objects.live))
}

// site returns the index of the sum of an object, and whether the object lost its stack for lack of
// room.
func (x *objects) site(key objectSite, room bool) (n uint32, stackless bool) {
	same := func(s objectSite) bool {
		return s.stack == key.stack && s.kind == key.kind && s.device == key.device && s.api == key.api
	}
	i := slices.IndexFunc(x.sites, same)
	if i < 0 && (!room || len(x.sites) >= maxObjectSites) {
		key = objectSite{kind: key.kind, device: UnknownDevice}
		stackless = true
		i = slices.IndexFunc(x.sites, same)
	}
	if i < 0 {
		x.sites = append(x.sites, key)
		i = len(x.sites) - 1
	}
	return uint32(i), stackless
}

// end ends an object, unless it was made after time, when the call that ends it began: then it is
// another one with the same handle.
func (x *objects) end(key objectKey, time uint64) {
	if o, ok := x.live[key]; ok && o.time <= time {
		delete(x.live, key)
		s := &x.sites[o.site]
		s.live--
		s.bytes -= o.bytes
	}
}

// endIn ends what a context owns: itself, the green contexts of its device if it is primary, and
// what was made in it. Libraries belong to the process.
func (x *objects) endIn(context uint64, device int32, time uint64) {
	for key, o := range x.live {
		on := x.sites[o.site].device
		switch {
		case key.kind == Library:
		case key.kind == DriverContext && key.handle == context:
			x.end(key, time)
		case key.kind == GreenContext:
			if device != UnknownDevice && on == device {
				x.end(key, time)
			}
		case key.kind == DriverContext:
		case o.context != 0 && (o.context == context || device != UnknownDevice && x.derivedFrom(o.context) == device):
			x.end(key, time)
		}
	}
}

// graphs returns the live executables of graphs, by time.
func (x *objects) graphs() (list []driverObject) {
	for key, o := range x.live {
		if key.kind == GraphExec {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b driverObject) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.site, b.site)) })
	return list
}

// settle makes live objects on a device part of the baseline; UnknownDevice means all devices.
func (x *objects) settle(device int32) {
	for i := range x.sites {
		if s := &x.sites[i]; s.device == device || s.device == UnknownDevice || device == UnknownDevice {
			s.before = s.live
		}
	}
}

// forget drops what only events need.
func (x *objects) forget() { x.live, x.greens, x.derived = nil, nil, nil }

// derivedFrom returns the device of the primary context that a green context's CUcontext stands
// for.
func (x *objects) derivedFrom(context uint64) int32 {
	if device, ok := x.derived[context]; ok {
		return device
	}
	return UnknownDevice
}

func (p *contexts) greenCreate(e *Event) {
	x := &p.objects
	p.createObject(GreenContext, e.Address, e.Device, e)
	if uint32(e.Device) >= maxDevices {
		return
	}
	if x.greens == nil {
		x.greens = make(map[uint64]int32)
	}
	if len(x.greens) < maxDerived {
		x.greens[e.Address] = e.Device
	}
	p.contextRetain(&Event{PID: e.PID, Time: e.Time, Device: e.Device})
}

func (p *contexts) greenDestroy(e *Event) {
	x := &p.objects
	x.end(objectKey{e.Address, GreenContext}, e.Time)
	device, ok := x.greens[e.Address]
	if !ok {
		return // older than the attach, as its reference is
	}
	delete(x.greens, e.Address)
	p.contextRelease(&Event{PID: e.PID, Time: e.Time, Device: device})
}

// contextDerive notes the CUcontext of a green context.
func (p *contexts) contextDerive(e *Event) {
	x := &p.objects
	device, ok := x.greens[e.Handle]
	if !ok || e.Context == 0 || p.purged {
		return
	}
	if x.derived == nil {
		x.derived = make(map[uint64]int32)
	}
	if len(x.derived) < maxDerived {
		x.derived[e.Context] = device
	}
}

// smallestPage is what sizes of memory of a GPU are multiples of.
const smallestPage = 4 << 10

// isInternal reports whether the driver took memory for itself. A size that no memory of a GPU can
// have shows that a later driver has another layout of requests.
func (p *heap) isInternal(e *Event) bool {
	if e.Size == 0 || e.Size%smallestPage != 0 || e.Size > maxSize {
		p.warnOf(fmt.Sprintf("process %d: the requests of its driver have a layout that vramprof does not know: what the driver takes for itself is unexplained", e.PID))
		return false
	}
	return !p.isOfGraphs(e)
}

// knowsContext reports whether the books have what the driver took for the context of a process.
func (p *heap) knowsContext() bool {
	return slices.ContainsFunc(p.totals, func(t runningTotal) bool { return t.Kind == Internal })
}

// countOfClient counts how many objects of a client are live.
func (p *heap) countOfClient(address uint64, change int) {
	client := address >> 32
	n := p.clients[client] + change
	if n <= 0 {
		delete(p.clients, client)
		return
	}
	if p.clients == nil {
		p.clients = make(map[uint64]int)
	}
	p.clients[client] = n
}

// isOfGraphs reports whether the driver took memory for allocations of graphs, which are booked
// already: whole chunks, during a launch, on a GPU where the process has such allocations.
func (p *heap) isOfGraphs(e *Event) bool {
	if e.Size%chunks.Size != 0 || !strings.HasPrefix(e.API, "cuGraphLaunch") {
		return false
	}
	for device, x := range p.graphs {
		if (device == e.Device || device == UnknownDevice || e.Device == UnknownDevice) && x.Most() > 0 {
			return true
		}
	}
	return false
}
