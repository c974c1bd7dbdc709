// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bytes"
	"slices"

	"github.com/vramprof/vramprof/tracer/clock"
)

const maxPairs = 4 // of reads, until all devices were seen at rest

// Counters reads only the counters of each device, with a few system calls for all of them. Exact
// then certifies that the lock was free and the counters stood still in two reads; OffBlocks and
// OffBytes are what they moved by otherwise. Contradicted is 0. The first call walks if no layout
// is known. It returns an *Error where the allocator cannot be read or keeps no counters.
func (a *Allocator) Counters() ([]Device, error) {
	if a.layout == nil || a.layout.stats == 0 {
		s, err := a.Walk(1)
		if err != nil {
			return nil, err
		}
		return s.Devices, a.counts()
	}
	a.begin()
	defer a.r.end()
	kept := a.found != nil
	devices, err := a.poll()
	if err != nil && kept { // the process may have another one by now
		a.forget()
		devices, err = a.poll()
	}
	a.stale = err != nil
	return devices, err
}

// counts returns an error for a backend without counters.
func (a *Allocator) counts() error {
	if a.found.backend != Native {
		return &Error{Code: Uncounted}
	}
	return nil
}

func (a *Allocator) poll() ([]Device, error) {
	if err := a.find(); err != nil {
		return nil, err
	}
	if err := a.counts(); err != nil {
		return nil, err
	}
	if !slices.Equal(a.layout.sets, a.found.sets) {
		return nil, &Error{Code: Contradicted}
	}
	p := poller{layout: a.layout, size: a.layout.sets[len(a.layout.sets)-1] + nodeSize}
	p.was, p.is = make([]byte, p.size*len(a.found.devices)), make([]byte, p.size*len(a.found.devices))
	devices := make([]Device, len(a.found.devices))
	for range maxPairs {
		from := clock.Now()
		p.read(a.r, a.found.devices, p.was)
		p.read(a.r, a.found.devices, p.is)
		to := clock.Now()
		resting, proven := true, true
		for i, at := range a.found.devices {
			ok := p.judge(a.r, &devices[i], i, at)
			devices[i].From, devices[i].To = from, to
			resting, proven = resting && devices[i].Exact, proven && ok
		}
		switch {
		case a.r.over:
			return nil, &Error{Code: TooMuch}
		case !proven:
			return nil, &Error{Code: Contradicted}
		case resting:
			return devices, nil
		}
	}
	return devices, nil
}

// poller has two reads of the begin of each device's object: its lock, its counters and its sets.
type poller struct {
	layout  *Layout
	size    int // of what is read of each
	was, is []byte
}

func (p *poller) read(r *reader, objects []uint64, to []byte) {
	clear(to)
	r.each(p.size, objects, func(i int, b []byte) { copy(to[i*p.size:], b) })
}

// judge fills in a device and reports whether its object still proves itself: by its sets, and at
// rest also by its counters.
func (p *poller) judge(r *reader, d *Device, i int, at uint64) (proven bool) {
	l, was, is := p.layout, p.was[i*p.size:][:p.size], p.is[i*p.size:][:p.size]
	end := l.sets[0] - 8
	before := countersAt(was, l)
	*d = Device{Index: i, Counters: countersAt(is, l), LockFree: unlocked(was) && unlocked(is)}
	d.Steady = steady(&before, &d.Counters)
	d.Exact = d.LockFree && bytes.Equal(was[8:end], is[8:end])
	if !d.Exact {
		d.OffBlocks, d.OffBytes = moved(before.Allocations, d.Counters.Allocations), moved(before.Allocated, d.Counters.Allocated)
	}
	for _, o := range l.sets {
		if !r.likeSet(is, at, o) && (d.Exact || !r.likeSet(was, at, o)) {
			return false
		}
	}
	return !d.Exact || divided(is, l.stats)
}
