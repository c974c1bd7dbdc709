// SPDX-License-Identifier: Apache-2.0

package pauses

import (
	"cmp"
	"errors"
	"time"

	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/budget"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/survivors"
	"github.com/vramprof/vramprof/tracer/torchalloc"
)

const (
	maxReaders = 64                     // processes whose counters are read; of others no block stays
	readTime   = 100 * time.Millisecond // for all of them
	oneTime    = 50 * time.Millisecond  // for one; the first time its blocks are read, too
	pause      = 10 * time.Second       // until a process is tried again whose counters could not be read
)

// readers read the counters of PyTorch's allocators. They keep what they have opened: the same
// process and allocator must answer before a pause and after it.
type readers struct {
	layouts *allocator.Layouts
	of      map[uint32]*reader
	open    func(pid uint32, layouts *allocator.Layouts) (source, error)

	forAll, forOne time.Duration // readTime and oneTime, or longer
}

// source reads the counters of one process; the same one as long as it gives no error.
type source interface {
	Counters() ([]allocator.Device, error)
	Close()
}

type reader struct {
	source           // nil: it failed
	next   time.Time // then: when to try again
}

func newReaders(patience time.Duration) readers {
	return readers{
		layouts: &allocator.Layouts{}, of: map[uint32]*reader{}, open: openProcess,
		forAll: max(readTime, patience), forOne: cmp.Or(patience, oneTime),
	}
}

// read is the counters of allocators, by process. by is the reader that they come from.
type read map[uint32]reading

type reading struct {
	devices []allocator.Device
	by      *reader
}

func (r read) pids() []uint32 {
	list := make([]uint32, 0, len(r))
	for pid := range r {
		list = append(list, pid)
	}
	return list
}

// read reads the counters of processes, the first ones where time does not suffice for all.
func (r *readers) read(pids []uint32) read {
	out, end := read{}, time.Now().Add(r.forAll)
	for _, pid := range pids {
		if now := time.Now(); now.Before(end) && (r.of[pid] != nil || len(r.of) < maxReaders) {
			if devices, by := r.one(pid, now); devices != nil {
				out[pid] = reading{devices, by}
			}
		}
	}
	return out
}

// retain closes the readers of all other processes.
func (r *readers) retain(reporting map[uint32]budget.Count) {
	for pid, x := range r.of {
		if _, ok := reporting[pid]; !ok {
			x.Close()
			delete(r.of, pid)
		}
	}
}

func (r *readers) one(pid uint32, now time.Time) ([]allocator.Device, *reader) {
	x := r.of[pid]
	if x != nil && x.source == nil && now.Before(x.next) {
		return nil, nil
	}
	if x == nil || x.source == nil {
		x = &reader{next: now.Add(pause)}
		r.of[pid] = x
		from, err := deadline.Call(r.forOne, func() (source, error) { return r.open(pid, r.layouts) })
		if err != nil {
			return nil, nil
		}
		x.source = from
	}
	from := x.source
	devices, err := deadline.Call(r.forOne, from.Counters)
	if err != nil {
		if !errors.Is(err, deadline.ErrStuck) {
			from.Close()
		}
		r.of[pid] = &reader{next: now.Add(pause)}
		return nil, nil
	}
	return devices, x
}

func (x *reader) Close() {
	if x.source != nil {
		x.source.Close()
	}
}

func (r *readers) close() {
	for _, x := range r.of {
		x.Close()
	}
}

// until returns what is known of allocators whose counters were read before and after by the same
// reader.
func (r read) until(after read) map[torchalloc.Allocator]torchalloc.Known {
	list := map[torchalloc.Allocator]torchalloc.Known{}
	for pid, then := range r {
		now, ok := after[pid]
		if !ok {
			continue
		}
		for i := range now.devices {
			d := &now.devices[i]
			of := torchalloc.Allocator{PID: pid, Device: int32(d.Index)}
			x := torchalloc.Known{Stayed: ledger.Stayed{PID: pid, Device: of.Device, Small: ledger.Unknown, Large: ledger.Unknown}}
			c := &d.Counters
			x.Totals, x.Allocated, x.Reserved = c.Reserved.Current > 0, c.Allocated.Current, c.Reserved.Current
			if i < len(then.devices) && then.by == now.by {
				before := &then.devices[i].Counters
				x.Small, x.Large = survivors.Bounds(before, c, d.Steady)
				if c.Allocated.Peak > before.Allocated.Peak {
					x.Peak = c.Allocated.Peak
				}
			}
			list[of] = x
		}
	}
	return list
}

// process is a source: an open process, as long as it runs the same program.
type process struct {
	*allocator.Allocator
	memory    *peek.Process
	execution peek.Execution
}

var errOther = errors.New("the process runs another program")

func openProcess(pid uint32, layouts *allocator.Layouts) (source, error) {
	m, err := peek.Open(int(pid))
	if err != nil {
		return nil, err
	}
	return &process{layouts.New(m), m, m.Execution()}, nil
}

func (p *process) Counters() ([]allocator.Device, error) {
	devices, err := p.Allocator.Counters()
	if err == nil && p.memory.Execution().Differs(p.execution) {
		err = errOther
	}
	return devices, err
}

func (p *process) Close() { p.memory.Close() }
