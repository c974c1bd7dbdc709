// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"math"

	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

// Append packs a track that does not change any more. Groups numbers the groups packed before, from
// 1 on.
func Append(out []byte, t *Track, groups map[Group]uint64) []byte {
	w := packer{out, groups}
	w.history(&t.History)
	w.cohorts(t)
	return w.out
}

// Read reads what Append packed, and returns the rest.
func Read(in []byte, t *Track, groups map[uint64]Group) []byte {
	r := unpacker{in, groups}
	t.History = r.history()
	r.cohorts(t)
	return r.in
}

type packer struct {
	out    []byte
	groups map[Group]uint64
}

func (w *packer) history(h *History) {
	w.put(uint64(h.shift), uint64(len(h.changes)))
	var before uint64
	for _, c := range h.changes {
		w.put(c.time-before, c.live)
		before = c.time
	}
}

// cohorts writes a site's windows, after the cohorts that it shares with others if it is the first
// of them.
func (w *packer) cohorts(t *Track) {
	c, group, written := t.group(), uint64(0), false
	if t.shared != nil {
		if group, written = w.groups[t.shared]; !written {
			group = uint64(len(w.groups)) + 1
			w.groups[t.shared] = group
		}
	}
	w.put(group)
	if !written {
		w.put(c.base, c.live, c.peak, c.levels.until, uint64(c.highs), uint64(c.last), uint64(c.shift))
		write := func(x level) { w.put(x.floor, uint64(x.area/float64(uint64(1)<<c.shift))) }
		write(level{c.floor, c.levels.now})
		for i := range int(c.last) {
			write(c.levels.at(i))
		}
		w.recents(c.levels.recents)
	}
	for i := range t.own.parts.list[:c.last+1] {
		x := &t.own.parts.list[i]
		w.window(x)
	}
	w.put(uint64(len(t.own.parts.recent)))
	for i := range t.own.parts.recent {
		w.window(&t.own.parts.recent[i])
	}
}

func (w *packer) window(x *window) {
	w.put(x.alloc, x.live, uint64(x.allocObjects), uint64(x.liveObjects))
}

func (w *packer) recents(r *recents) {
	if r == nil {
		w.put(0)
		return
	}
	w.put(uint64(len(r.lows)), r.first, r.newest, r.until, math.Float64bits(r.now), uint64(len(r.records)))
	for _, x := range r.lows {
		w.put(x.floor, x.kept, x.young, uint64(math.Float32bits(x.area)))
	}
	for _, x := range r.records {
		w.put(x.Floor, x.Lowest, x.Kept, x.Young)
	}
}

func (w *packer) put(list ...uint64) { w.out = codec.AppendUvarints(w.out, list...) }

type unpacker struct {
	in     codec.Uvarints
	groups map[uint64]Group
}

func (r *unpacker) history() (h History) {
	h.shift, h.changes = uint8(r.in.Next()), make([]change, r.in.Next())
	var time uint64
	for i := range h.changes {
		time += r.in.Next()
		h.changes[i] = change{time, r.in.Next()}
	}
	return h
}

func (r *unpacker) cohorts(t *Track) {
	t.own.parts = new(windows)
	group := r.in.Next()
	c, read := r.groups[group]
	switch {
	case group == 0:
		c = &t.own
	case !read:
		c = new(cohorts)
		r.groups[group] = c
	}
	if group != 0 {
		t.shared = c
		t.own.parts.next, c.parts = c.parts, t.own.parts
	}
	if !read {
		c.levels = new(levels)
		r.in.Read(&c.base, &c.live, &c.peak, &c.levels.until)
		c.highs, c.last, c.shift = uint16(r.in.Next()), uint8(r.in.Next()), uint8(r.in.Next())
		read := func(x *level) {
			r.in.Read(&x.floor)
			x.area = float64(r.in.Next()) * float64(uint64(1)<<c.shift)
		}
		var now level
		read(&now)
		c.floor, c.levels.now = now.floor, now.area
		for i := range int(c.last) {
			var x level
			read(&x)
			c.levels.set(i, x)
		}
		c.levels.recents = r.recents()
	}
	for i := range t.own.parts.list[:c.last+1] {
		x := &t.own.parts.list[i]
		r.window(x)
	}
	t.own.parts.recent = make([]window, r.in.Next())
	for i := range t.own.parts.recent {
		r.window(&t.own.parts.recent[i])
	}
}

func (r *unpacker) window(x *window) {
	x.alloc, x.live, x.allocObjects, x.liveObjects = r.in.Next(), r.in.Next(), uint32(r.in.Next()), uint32(r.in.Next())
}

func (r *unpacker) recents() *recents {
	n := r.in.Next()
	if n == 0 {
		return nil
	}
	x := &recents{lows: make([]low, n), first: r.in.Next(), newest: r.in.Next(), until: r.in.Next()}
	x.now = math.Float64frombits(r.in.Next())
	x.records = make([]Record, r.in.Next())
	for i := range x.lows {
		x.lows[i] = low{r.in.Next(), r.in.Next(), r.in.Next(), math.Float32frombits(uint32(r.in.Next()))}
	}
	for i := range x.records {
		y := &x.records[i]
		r.in.Read(&y.Floor, &y.Lowest, &y.Kept, &y.Young)
	}
	return x
}
