// SPDX-License-Identifier: Apache-2.0

package html

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestTensorsAsleepAreApartFromTheirGPU(t *testing.T) {
	in := fixture()
	s := in.Snapshot
	at := slices.IndexFunc(s.Sites, func(x ledger.Site) bool { return x.Kind == ledger.Tensor && x.Device >= 0 && x.LiveBytes > 0 })
	x := &s.Sites[at]
	x.Asleep = x.LiveBytes / 4 * 3
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.Process == x.Process && t.Device == x.Device {
			t.Asleep = x.Asleep
		}
	}
	row := slices.IndexFunc(in.Timeline.Rows, func(r timeline.Row) bool { return r.Process == x.Process && r.Device == x.Device })
	in.Timeline.Rows[row].Asleep = make([]uint64, len(in.Timeline.Times))
	in.Timeline.Rows[row].Asleep[7] = 5 * gib
	p := newPayload(&in)
	plane := slices.Index(p.Planes, report.PlaneAsleep)
	var asleep, awake, before int64
	for e := range p.Entries.Live {
		switch {
		case p.Entries.Plane[e] != plane:
		case p.Entries.GPU[e] != p.Chart.Rows[row].GPU || p.Entries.Alloc[e] != 0:
			t.Errorf("entry %d is on GPU %d, with %d bytes allocated; want that of its tensors, and none", e, p.Entries.GPU[e], p.Entries.Alloc[e])
		default:
			asleep += p.Entries.Live[e]
			before += levelAt(p.Entries.Series[e], slices.Index(points(p), 7))
		}
		if p.Planes[p.Entries.Plane[e]] == report.PlaneTensor && p.Entries.Process[e] == x.Process {
			awake += p.Entries.Live[e]
		}
	}
	if asleep != int64(x.Asleep) || before != int64(5*gib) || !slices.Contains(p.Apart, report.PlaneAsleep) {
		t.Errorf("%d bytes asleep at the end, %d at moment 7, want %d and %d", asleep, before, x.Asleep, 5*gib)
	}
	var want int64
	for _, h := range report.Holdings(s) {
		if h.Plane == report.PlaneTensor && h.Process == x.Process {
			want += h.Live
		}
	}
	if awake != want || awake == 0 {
		t.Errorf("%d bytes of tensors awake, want %d", awake, want)
	}
}

// Rows of the table carry the name of the module whose memory they are.
func TestRowsHaveTheNameOfTheirModule(t *testing.T) {
	p := newPayload(&Input{Snapshot: reporttest.Modelled(), Stacks: reporttest.HelperStacks{}})
	var got []string
	for e, row := range p.Entries.Row {
		if name := p.Strings[p.Entries.Module[e]]; e == row && name != "" {
			got = append(got, p.Strings[p.Frames.Name[p.Entries.Head[e]]]+" "+name)
		}
	}
	slices.Sort(got)
	if want := []string{"Block.forward model.blocks.*.mlp"}; !slices.Equal(got, want) {
		t.Errorf("modules of rows: %q, want %q", got, want)
	}
}

// points are the moments of the timeline that the page has all entries of.
func points(p *payload) (list []int) {
	at := 0
	for _, step := range p.Chart.Grid {
		at += step
		list = append(list, at)
	}
	return list
}
