// SPDX-License-Identifier: Apache-2.0

// Package purpose divides what each process uses on each GPU by what it is for: weights, gradients,
// activations, libraries. It is the only owner of these rules. Their evidence is who keeps memory,
// as walks found it, and the stack that allocated it.
package purpose

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Of returns the balances of a snapshot, of processes in its order. Processes that have ended have
// none.
func Of(s *ledger.Snapshot, st callstack.Stacks) (list []Balance) {
	d := divider{s: s, stacks: newStackReader(s, st)}
	for _, part := range d.parts() {
		if b, ok := d.balance(&part); ok {
			list = append(list, b)
		}
	}
	return list
}

// OfProcess returns the balances of one process, which costs less than all.
func OfProcess(s *ledger.Snapshot, st callstack.Stacks, process int) (list []Balance) {
	d := divider{s: s, stacks: newStackReader(s, st)}
	for _, part := range d.parts() {
		if part.Process != process {
			continue
		}
		if b, ok := d.balance(&part); ok {
			list = append(list, b)
		}
	}
	return list
}

// With is Of with what else is known of one process; nil: nothing.
func With(s *ledger.Snapshot, st callstack.Stacks, more *More) []Balance {
	list := Of(s, st)
	if more == nil {
		return list
	}
	arenas := more.Arenas
	for i := range list {
		if s.Processes[list[i].Process].PID == more.PID {
			list[i].Use, list[i].Arenas, arenas = more.Use, arenas, nil // once: which GPU an arena is on is not known
		}
	}
	return list
}

// KVCache returns the bytes of KV caches in a balance.
func (b *Balance) KVCache() (sum int64) {
	for i := range b.Rows {
		if b.Rows[i].Kind == KVCache {
			sum += b.Rows[i].Bytes
		}
	}
	return sum
}

// parts returns the parts of processes that run.
func (d *divider) parts() (list []part) {
	for _, x := range d.s.Parts() {
		list = append(list, part{x, true})
	}
	for i := range d.s.Tensors {
		t := &d.s.Tensors[i]
		if t.Device == ledger.CPUDevice || d.s.BalanceOf(t.Process, t.Device) >= 0 {
			continue
		}
		uuid := report.GPUUUID(d.s, t.Process, t.Device, ledger.Tensor)
		if slices.ContainsFunc(list, func(p part) bool {
			return p.Process == t.Process && p.UUID == uuid && (uuid != "" || p.Device == t.Device)
		}) {
			continue
		}
		x := part{Part: ledger.Part{Process: t.Process, Device: t.Device, UUID: uuid, Tensors: report.Minus(t.LiveBytes, t.Asleep), Cached: t.Cached, OlderCached: t.OlderCached}}
		x.OlderAllocated = report.Minus(t.Older, t.OlderAsleep+t.OlderMoved)
		list = append(list, x)
	}
	list = append(list, d.unread(list)...)
	list = slices.DeleteFunc(list, func(p part) bool { return d.s.Processes[p.Process].End != 0 || p.Unlisted > 0 })
	slices.SortStableFunc(list, func(a, b part) int { return cmp.Compare(a.Process, b.Process) })
	return list
}

// unread returns parts of what was allocated from CUDA by processes of which nothing else is known:
// NVML has no figure yet.
func (d *divider) unread(known []part) (list []part) {
	reports := report.ReportTensors(d.s)
	for i := range d.s.Sites {
		x := &d.s.Sites[i]
		if !x.Kind.Owned() || x.LiveBytes == 0 || x.Segment && reports[x.Process] || slices.ContainsFunc(known, func(p part) bool { return p.Process == x.Process }) ||
			slices.ContainsFunc(list, func(p part) bool { return p.Process == x.Process && p.Device == x.Device }) {
			continue
		}
		list = append(list, part{Part: ledger.Part{Process: x.Process, Device: x.Device, UUID: report.GPUUUID(d.s, x.Process, x.Device, x.Kind)}})
	}
	return list
}

// balance divides one part. ok is false if there is nothing.
func (d *divider) balance(x *part) (b Balance, ok bool) {
	b = Balance{Process: x.Process, Device: x.Device, UUID: x.UUID, Read: x.read, Doubt: Doubt{Beyond: x.Taken}}
	rows := rowSet{}
	d.tensors(x, rows, &b.Doubt)
	d.cache(x, rows, &b.Doubt)
	d.driver(x, rows)
	d.rounding(x, rows)
	foreign := Before
	switch {
	case d.s.Unattached:
		foreign = Rest
	case report.BeganWithin(d.s, x.Process): // nothing of it is older than the attach
		foreign = Context
	}
	rows.add(foreign, "", x.Foreign)
	rows.add(Unknown, "", x.Unplaced)
	rows.add(Unexplained, "", x.Unexplained)
	b.Rows = rows.list()
	for i := range b.Rows {
		b.Bytes += b.Rows[i].Bytes
	}
	return b, len(b.Rows) > 0
}
