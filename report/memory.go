// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// amount of live memory.
type amount struct{ bytes, objects, sites uint64 }

func (a *amount) add(x *ledger.Site) {
	a.bytes += awake(x)
	a.objects += awakeObjects(x)
	a.sites++
}

func (a *amount) text() string { return counted(a.objects, "allocation") + ", " + BytesText(a.bytes) }

// amounts of sites: own has host, managed and ended in it, but neither imported nor cache.
type amounts struct{ own, host, managed, ended, imported, cache amount }

func sumOf(s *ledger.Snapshot, list []ledger.Site) amounts {
	reports := reporters(s)
	var sum amounts
	for i := range list {
		x := &list[i]
		switch {
		case x.LiveObjects == 0:
		case planeOf(x, reports) == PlaneCache:
			sum.cache.add(x)
			sum.cache.bytes -= min(x.Tensors, x.LiveBytes)
		case !counts(x.Kind):
			sum.imported.add(x)
		default:
			sum.own.add(x)
			switch {
			case onHost(x):
				sum.host.add(x)
			case apart(x):
				sum.managed.add(x)
			}
			if s.Processes[x.Process].End != 0 {
				sum.ended.add(x)
			}
		}
	}
	return sum
}

// divided divides sites as Leaks orders them: those of GPUs with those of imported memory behind them, those of managed
// memory, those of the host.
func divided(list []ledger.Site) (gpu, managed, host []ledger.Site) {
	n := len(list)
	for n > 0 && onHost(&list[n-1]) {
		n--
	}
	m := n
	for m > 0 && apart(&list[m-1]) {
		m--
	}
	return list[:m], list[m:n], list[n:]
}

// moreText is "2 more sites with 3.0 MiB, 1 more site of imported memory".
func moreText(s *ledger.Snapshot, list []ledger.Site) string {
	sum := sumOf(s, list)
	var parts []string
	if sum.own.sites > 0 {
		parts = append(parts, counted(sum.own.sites, "more site")+" with "+BytesText(sum.own.bytes))
	}
	if sum.imported.sites > 0 {
		parts = append(parts, counted(sum.imported.sites, "more site")+" of imported memory")
	}
	return strings.Join(parts, ", ")
}

func totals(p *page, s *ledger.Snapshot, n *notes) {
	p.line(plain, 0, "")
	rows := totalRows(p, s)
	mark := n.mark(atTotals)
	if len(rows) == 1 {
		none := "No allocation was seen"
		if len(s.Tensors) > 0 { // a warm cache needs none
			none = "Nothing was taken from CUDA since tracing began"
		}
		p.text(bold, 0, words(none, mark))
		return
	}
	p.text(bold, 0, words("Allocated since tracing began", mark))
	p.line(plain, 0, "")
	p.table(rows)
	sum := sumOf(s, s.Sites)
	if sum.imported.sites+sum.managed.sites > 0 {
		p.line(plain, 0, "")
	}
	if sum.imported.sites > 0 {
		p.paragraph("", "Imported memory is in the sums of its owner, and in no other.")
	}
	if sum.managed.sites > 0 {
		p.paragraph("", "Managed memory is in no GPU's sum: NVML counts it for no process.")
	}
}

// totalRows are a header and the memory that each process took from CUDA, by place. Several kinds in one
// place have rows of their own below their sum, whose peak is not known.
func totalRows(p *page, s *ledger.Snapshot) [][]string {
	rows := [][]string{{"process", "memory", "live", "count", "peak", "after"}}
	row := func(name, memory string, list []ledger.Total) {
		var sum ledger.Total
		for i := range list {
			sum.LiveBytes += list[i].LiveBytes
			sum.LiveObjects += list[i].LiveObjects
		}
		peak, after := "", ""
		if len(list) == 1 {
			peak, after = BytesText(list[0].PeakBytes), span(minus(list[0].PeakTime, s.Begin))
		}
		rows = append(rows, []string{name, memory, BytesText(sum.LiveBytes), humanize.Comma(int64(sum.LiveObjects)), peak, after})
	}
	for i := range s.Processes {
		name := ownerName(s, i, p.firstColumn(len(rows[0])-2))
		list := slices.DeleteFunc(slices.Clone(s.Processes[i].Totals), func(t ledger.Total) bool { return t.Kind == ledger.Tensor })
		slices.SortStableFunc(list, func(a, b ledger.Total) int {
			x, y := order(&a), order(&b)
			return cmp.Or(slices.Compare(x[:], y[:]), cmp.Compare(a.Kind, b.Kind))
		})
		for len(list) > 0 {
			here := run(list, order)
			list = list[len(here):]
			first := &here[0]
			switch at := DeviceName(first.Device, first.Kind); {
			case first.Kind != here[len(here)-1].Kind:
				row(name, at, here)
				for len(here) > 0 {
					same := run(here, func(t *ledger.Total) ledger.Kind { return t.Kind })
					here = here[len(same):]
					row("", "  "+KindName(same[0].Kind), same)
				}
			case first.Kind == ledger.Device:
				row(name, at, here)
			default:
				row(name, at+" "+KindName(first.Kind), here)
			}
		}
	}
	return rows
}

// order is by place: GPUs, an unknown one, managed memory, the host, and what is imported, which is in no sum.
func order(t *ledger.Total) [2]int32 {
	switch {
	case !counts(t.Kind):
		return [2]int32{4, t.Device}
	case t.Kind.OnHost():
		return [2]int32{3, 0}
	case t.Kind == ledger.Managed:
		return [2]int32{2, t.Device}
	case t.Device < 0:
		return [2]int32{1, 0}
	}
	return [2]int32{0, t.Device}
}

// run is the beginning of a list that has one key.
func run[K comparable](list []ledger.Total, key func(*ledger.Total) K) []ledger.Total {
	n := 1
	for n < len(list) && key(&list[n]) == key(&list[0]) {
		n++
	}
	return list[:n]
}

// remarks are sentences on what figures leave open: what pools hold, what was freed without
// a free, what is not there any more, and where tensors are not known.
func remarks(s *ledger.Snapshot, st callstack.Stacks) []string {
	list := append(objectTexts(s, st), contextOnlyTexts(s, st)...)
	list = append(list, poolTexts(s)...)
	for i := range s.Processes {
		if why := segmentsOnly(s, st, i); why != "" {
			list = append(list, processName(&s.Processes[i])+": segments only, no tensors: "+why)
		}
	}
	for i := range s.Releases {
		r := &s.Releases[i]
		list = append(list, fmt.Sprintf("%s: freed by %s: %s, %s", processName(&s.Processes[r.Process]),
			causeName(r.Cause), counted(r.Objects, "allocation"), BytesText(r.Bytes)))
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		var live uint64
		for _, t := range p.Totals {
			if counts(t.Kind) && t.Kind != ledger.Tensor {
				live += t.LiveBytes
			}
		}
		if p.End != 0 && live > 0 {
			how := "ended"
			if p.Replaced {
				how = "executed another program"
			}
			list = append(list, fmt.Sprintf("%s %s %s ago and gave back the %s shown for it", processName(p), how, span(minus(s.End, p.End)), BytesText(live)))
		}
	}
	return list
}

// poolTexts is "python3 [42] on cuda:0: 2 async pools: 1.2 GiB used, may hold up to
// 3.0 GiB" for each process and device whose pools may hold more than is used.
func poolTexts(s *ledger.Snapshot) []string {
	var list []string
	for i := 0; i < len(s.Pools); {
		first := &s.Pools[i]
		var n, used, reserve uint64
		for ; i < len(s.Pools) && s.Pools[i].Process == first.Process && s.Pools[i].Device == first.Device; i++ {
			if x := &s.Pools[i]; !x.Destroyed {
				n++
				used += x.Used
				reserve += x.Reserve
			}
		}
		p := &s.Processes[first.Process]
		if reserve <= used || p.End != 0 {
			continue
		}
		noun := "async pool"
		if n > 1 {
			noun = counted(n, noun)
		}
		at := ""
		if first.Device >= 0 {
			at = " on " + DeviceName(first.Device, ledger.Async)
		}
		list = append(list, fmt.Sprintf("%s%s: %s: %s used, may hold up to %s", processName(p), at, noun, BytesText(used), BytesText(reserve)))
	}
	return list
}

func remarkLines(p *page, s *ledger.Snapshot, st callstack.Stacks) {
	list := remarks(s, st)
	if len(list) > 0 {
		p.line(plain, 0, "")
	}
	for _, text := range list {
		p.paragraph("", text)
	}
}
