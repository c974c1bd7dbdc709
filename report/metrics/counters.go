// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// counts are amounts that never go down.
type counts struct{ allocs, allocBytes, frees, freedBytes uint64 }

func (c *counts) add(x *counts) {
	c.allocs += x.allocs
	c.allocBytes += x.allocBytes
	c.frees += x.frees
	c.freedBytes += x.freedBytes
}

// fields returns the amounts one by one.
func (c *counts) fields() [4]*uint64 {
	return [4]*uint64{&c.allocs, &c.allocBytes, &c.frees, &c.freedBytes}
}

// amounts are counts by GPU and by what is counted: a kind of memory, or an error.
type amounts map[place]*counts

type place struct{ uuid, what string }

func (a amounts) add(at place, x *counts) {
	if a[at] == nil {
		a[at] = &counts{}
	}
	a[at].add(x)
}

// advance adds what is new in now, and calls add for each place that has more. The books can move
// allocations from one GPU to another when they learn where these are. What was counted stays
// counted there, so that each allocation counts once and no counter goes down.
func (a amounts) advance(now amounts, add func(place, *counts)) {
	rest := map[string]*counts{} // all that is new
	for at, x := range now {
		if rest[at.what] == nil {
			rest[at.what] = &counts{}
		}
		rest[at.what].add(x)
	}
	for at, x := range a {
		if all := rest[at.what]; all != nil {
			for i, n := range all.fields() {
				*n = report.Minus(*n, *x.fields()[i])
			}
		}
	}
	for _, at := range now.ordered() {
		was, more := counts{}, counts{}
		if a[at] != nil {
			was = *a[at]
		}
		for i, all := range rest[at.what].fields() {
			n := min(report.Minus(*now[at].fields()[i], *was.fields()[i]), *all)
			*all -= n
			*more.fields()[i] = n
		}
		if more != (counts{}) || a[at] == nil {
			a.add(at, &more)
			add(at, &more)
		}
	}
}

func (a amounts) ordered() []place {
	list := make([]place, 0, len(a))
	for at := range a {
		list = append(list, at)
	}
	slices.SortFunc(list, func(a, b place) int { return cmp.Or(cmp.Compare(a.uuid, b.uuid), cmp.Compare(a.what, b.what)) })
	return list
}

// counted has what of a process is in the counters of rows.
type counted struct {
	memory, failures amounts
	ooms             uint64
}

func newCounted() *counted { return &counted{memory: amounts{}, failures: amounts{}} }

// absorb adds what was counted of a process that left the books.
func (c *counted) absorb(x *counted) {
	for at, n := range x.memory {
		c.memory.add(at, n)
	}
	for at, n := range x.failures {
		c.failures.add(at, n)
	}
	c.ooms += x.ooms
}

// count brings the counters of rows up to date.
func (d *reading) count() {
	failures := make([]amounts, len(d.s.Processes))
	for i := range d.s.Failures {
		f := &d.s.Failures[i]
		if failures[f.Process] == nil {
			failures[f.Process] = amounts{}
		}
		failures[f.Process].add(place{d.uuidOf(f.Process, f.Device, f.Kind), errorLabel(f.Result)}, &counts{allocs: f.Count})
	}
	for i := range d.s.Processes {
		p, c := &d.s.Processes[i], d.counted[i]
		c.memory.advance(d.totals(i), func(at place, more *counts) { d.row(i, at.uuid).memory.add(place{what: at.what}, more) })
		c.failures.advance(failures[i], func(at place, more *counts) { d.row(i, at.uuid).failures.add(place{what: at.what}, more) })
		if o := p.OOM; o != nil && o.Count > c.ooms {
			d.row(i, d.uuidOf(i, o.Device, o.Kind)).ooms += o.Count - c.ooms
			c.ooms = o.Count
		}
	}
}

// totals returns what a process allocated and freed.
func (d *reading) totals(process int) amounts {
	list := amounts{}
	for _, t := range d.s.Processes[process].Totals {
		if !t.Kind.IsObject() {
			list.add(place{d.uuidOf(process, t.Device, t.Kind), format.Kind(t.Kind)},
				&counts{t.AllocObjects, t.AllocBytes, report.Minus(t.AllocObjects, t.LiveObjects), report.Minus(t.AllocBytes, t.LiveBytes)})
		}
	}
	return list
}

// errorLabel returns "out of memory". A process can report any number, so unknown ones share a
// label.
func errorLabel(result int32) string {
	if name, known := format.KnownResult(result); known {
		return name
	}
	return other
}

// census has what is counted of each process in the books.
type census struct {
	by   map[ledger.ProcessID]*counted
	gone *counted // processes that left the books
}

// of returns what is counted of each process of a snapshot, and takes those that left out of the
// books. An event can move the begin of a process back: it is the one of that pid that is missing
// and younger.
func (c *census) of(list []ledger.Process) []*counted {
	now, missing := make(map[ledger.ProcessID]*counted, len(list)), map[uint32]ledger.ProcessID{}
	for i := range list {
		now[list[i].ID()] = c.by[list[i].ID()]
	}
	for key := range c.by {
		if _, there := now[key]; !there && key.Begin > missing[key.PID].Begin {
			missing[key.PID] = key
		}
	}
	all := make([]*counted, len(list))
	for i := range list {
		key := list[i].ID()
		if old, found := missing[key.PID]; now[key] == nil && found && old.Begin > key.Begin {
			now[key] = c.by[old]
			delete(c.by, old)
		}
		if now[key] == nil {
			now[key] = newCounted()
		}
		delete(c.by, key)
		all[i] = now[key]
	}
	for _, x := range c.by {
		c.gone.absorb(x)
	}
	c.by = now
	return all
}
