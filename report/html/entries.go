// SPDX-License-Identifier: Apache-2.0

package html

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// maxSites is how many sites a page lists one by one; the smaller ones are summed.
const maxSites = 20_000

// noVerdict is in place of the index of a site, of shares that have their verdict with another one.
const noVerdict = -1

// Marks of what a timeline knows only in sum, beside those of package report.
const (
	markBefore = "[before attach]"
	markNoSite = "[of no known site]"
)

// addHoldings adds all holdings.
func (b *builder) addHoldings() {
	holdings, most := report.Holdings(b.s), cmp.Or(b.in.MaxSites, maxSites)
	small := map[[3]int]*entry{}
	var keys [][3]int
	for i := range holdings {
		h := &holdings[i]
		e := entry{plane: slices.Index(planes, h.Plane), process: h.Process, gpu: host, live: h.Live, age: -1}
		if !h.OnHost() {
			e.gpu = b.gpu(h.UUID, h.Device)
		}
		e.device = b.device(h)
		if h.Site == nil || h.Plane == report.PlaneAsleep && i >= most {
			b.addMark(h, e)
			continue
		}
		x := h.Site
		if h.Plane != report.PlaneAsleep && h.Live != 0 {
			e.objects = x.LiveObjects
		}
		if i >= most {
			key := [3]int{e.process, e.gpu, e.plane}
			if small[key] == nil {
				small[key] = &entry{plane: e.plane, process: e.process, gpu: e.gpu, device: e.device, age: -1}
				keys = append(keys, key)
			}
			small[key].add(h)
			continue
		}
		e.alloc, e.allocObjects = allocated(h)
		if b.over != nil {
			e.series = b.over.site(h, &e)
		}
		if e.live == 0 && e.alloc == 0 && len(e.series) == 0 {
			continue
		}
		if h.Plane == report.PlaneAsleep {
			i = noVerdict
		}
		b.addSite(i, h, e)
	}
	for _, key := range keys {
		e := *small[key]
		e.head = b.mark(fmt.Sprintf("[%d smaller sites]", len(b.s.Sites)-most))
		e.node = b.tree.leaf([]int{e.head})
		b.entries = append(b.entries, e)
	}
}

// device returns the label of a holding's device in profiles.
func (b *builder) device(h *report.Holding) int {
	kind := ledger.Device
	switch {
	case h.Site != nil:
		kind = h.Site.Kind
	case h.Plane == report.PlaneTensor:
		kind = ledger.Tensor
	}
	return b.text(format.Device(h.Device, kind))
}

func (e *entry) add(h *report.Holding) {
	bytes, objects := allocated(h)
	e.live += h.Live
	if h.Live != 0 {
		e.objects += h.Site.LiveObjects
	}
	e.alloc += bytes
	e.allocObjects += objects
}

// allocated returns what was allocated, without memory that belongs to others: to segments'
// tensors, or to the owner of imported memory.
func allocated(h *report.Holding) (bytes, objects uint64) {
	if h.Plane == report.PlaneCache || h.Plane == report.PlaneAsleep || h.Site.Kind == ledger.Imported {
		return 0, 0
	}
	return h.Site.AllocBytes, h.Site.AllocObjects
}

func (b *builder) addSite(index int, h *report.Holding, e entry) {
	x := h.Site
	head := 0
	if index < len(b.in.Verdicts) && index != noVerdict && h.Mark == "" {
		head = b.in.Verdicts[index].Head
	}
	s := b.stackWith(x.Stack, x.API, head)
	path := s.frames
	if h.Mark != "" {
		path = append(slices.Clip(path), b.mark(h.Mark))
	}
	e.node, e.head = b.tree.leaf(path), s.head
	e.below, e.callee, e.calls = s.below, s.callee, s.calls
	if h.Mark == "" {
		e.site = x
	}
	e.kind, e.api = b.text(format.Kind(x.Kind)), b.text(shorten(untrusted.Clean(x.API)))
	e.age = b.age(x)
	if marks := report.Marks(b.s, b.in.Stacks, x); len(marks) > 0 {
		e.incomplete = b.text(shorten(strings.Join(marks, "; ")))
	}
	if index < len(b.in.Verdicts) && index != noVerdict {
		v := &b.in.Verdicts[index]
		e.class, e.verdict = b.text(untrusted.Clean(v.Class)), b.text(shorten(untrusted.Clean(v.Text)))
	}
	b.kept.link(len(b.entries), h)
	b.entries = append(b.entries, e)
}

// addMark adds memory without a site. A timeline knows it only in sum, under the same first frame:
// see overTime.addRests.
func (b *builder) addMark(h *report.Holding, e entry) {
	e.head = b.mark(h.Mark)
	path := []int{e.head}
	switch {
	case h.Plane == report.PlaneBefore:
		path = []int{b.mark(markBefore), e.head}
	case h.Mark == report.MarkUntraced:
		path = []int{b.mark(report.MarkNoSample), e.head}
	}
	e.node = b.tree.leaf(path)
	b.kept.link(len(b.entries), h)
	b.entries = append(b.entries, e)
}

// columns writes the entries; place maps nodes of the tree to their columns.
func (b *builder) columns(place []int32) {
	n := len(b.entries)
	ints := func() []int { return make([]int, 0, n) }
	c := &b.p.Entries
	*c = entryColumns{
		Node: make([]int32, 0, n), Head: ints(), Plane: ints(), Process: ints(), GPU: ints(), Kind: ints(), API: ints(), Device: ints(), Class: ints(), Verdict: ints(), Incomplete: ints(), Below: ints(), Callee: ints(), Row: ints(),
		Live: make([]int64, 0, n), Objects: make([]uint64, 0, n), Alloc: make([]uint64, 0, n), AllocObjects: make([]uint64, 0, n), Age: make([]int64, 0, n),
		Series: make([][]int64, 0, n),
	}
	for i := range b.entries {
		e := &b.entries[i]
		c.Node = append(c.Node, place[e.node])
		c.Head = append(c.Head, e.head)
		c.Plane = append(c.Plane, e.plane)
		c.Process = append(c.Process, e.process)
		c.GPU = append(c.GPU, e.gpu)
		c.Kind = append(c.Kind, e.kind)
		c.API = append(c.API, e.api)
		c.Device = append(c.Device, e.device)
		c.Live = append(c.Live, e.live)
		c.Objects = append(c.Objects, e.objects)
		c.Alloc = append(c.Alloc, e.alloc)
		c.AllocObjects = append(c.AllocObjects, e.allocObjects)
		c.Age = append(c.Age, e.age)
		c.Class = append(c.Class, e.class)
		c.Verdict = append(c.Verdict, e.verdict)
		c.Incomplete = append(c.Incomplete, e.incomplete)
		c.Below = append(c.Below, e.below)
		c.Callee = append(c.Callee, e.callee)
		if b.over != nil {
			c.Series = append(c.Series, e.series)
		}
	}
	b.rows(c)
}

// rowKey is what entries of one row of the table have in common.
type rowKey struct{ head, process, gpu, plane, kind int }

// rows writes which entries are one row: those of one line of code.
func (b *builder) rows(c *entryColumns) {
	first, calls, sites := map[rowKey]int{}, map[int]*apart.Calls{}, map[int][]*ledger.Site{}
	c.Calls, c.Module = make([]int, len(b.entries)), make([]int, len(b.entries))
	for i := range b.entries {
		e := &b.entries[i]
		key := rowKey{e.head, e.process, e.gpu, e.plane, e.kind}
		n, ok := first[key]
		if !ok {
			n = i
			first[key], calls[n] = n, &apart.Calls{}
		}
		c.Row = append(c.Row, n)
		calls[n].AddNames(e.calls, uint64(max(e.live, 0)))
		if e.site != nil {
			sites[n] = append(sites[n], e.site)
		}
	}
	for i, n := range c.Row {
		if n == i {
			c.Calls[i] = b.text(shorten(apart.CallsText(calls[n].Names())))
			c.Module[i] = b.text(shorten(b.kept.moduleOf(b.entries[i].process, sites[n])))
		}
	}
}
