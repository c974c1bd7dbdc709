// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestEveryKindInText(t *testing.T) {
	s, st := reporttest.KindsSnapshot(), reporttest.Stacks()
	for width := minWidth; width <= 120; width++ {
		var b bytes.Buffer
		if err := errors.Join(
			WriteSummary(&b, s, st, report.Options{Top: 3}, Screen{Width: width}),
			WriteLeaks(&b, s, st, report.Options{Top: 20}, Screen{Width: width}),
		); err != nil {
			t.Fatal(err)
		}
		if reporttest.CheckText(t, b.String(), width); t.Failed() {
			t.Fatalf("at width %d", width)
		}
		if width == 80 {
			reporttest.Golden(t, "kinds80.txt", b.Bytes())
		}
	}
}

func TestKindsHaveTheirWords(t *testing.T) {
	for _, c := range []struct {
		kind              ledger.Kind
		name, at, whereIs string
	}{
		{ledger.Device, "device", "cuda:1", "cuda:1"},
		{ledger.Managed, "managed", "cuda:1", "managed memory of cuda:1"},
		{ledger.Pinned, "pinned", "host", "pinned host memory"},
		{ledger.Registered, "registered", "host", "registered host memory"},
		{ledger.Async, "async", "cuda:1", "async memory of cuda:1"},
		{ledger.VMM, "vmm", "cuda:1", "vmm memory of cuda:1"},
		{ledger.Array, "array", "cuda:1", "array memory of cuda:1"},
		{ledger.Imported, "imported", "cuda:1", "imported memory of cuda:1"},
		{ledger.Graph, "graph", "cuda:1", "graph memory of cuda:1"},
		{ledger.Tensor, "tensor", "cuda:1", "tensors on cuda:1"},
		{99, "kind 99", "cuda:1", "kind 99 memory of cuda:1"},
	} {
		if name, at, whereIs := format.Kind(c.kind), format.Device(1, c.kind), whereText(1, c.kind); name != c.name || at != c.at || whereIs != c.whereIs {
			t.Errorf("kind %d: %q, %q, %q, want %q, %q, %q", c.kind, name, at, whereIs, c.name, c.at, c.whereIs)
		}
	}
}

func TestAnImporterAloneHasNoLiveMemory(t *testing.T) {
	s := reporttest.KindsSnapshot()
	s.Sites = slices.DeleteFunc(s.Sites, func(x ledger.Site) bool { return x.Kind != ledger.Imported })
	var b bytes.Buffer
	if err := errors.Join(WriteLeaks(&b, s, reporttest.Stacks(), report.Options{}, Screen{}), WriteSummary(io.Discard, s, reporttest.Stacks(), report.Options{}, Screen{})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"No GPU memory allocated since the attach is live", "1.  2.00 GiB", "    1 allocation, oldest 57s\n", "imported memory of cuda:0"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestMemoryIsInRowsByPlace(t *testing.T) {
	s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 7, Comm: "a", Totals: []ledger.Total{
		{Device: -1, Kind: ledger.Device, LiveBytes: 1},
		{Device: -1, Kind: ledger.Imported, LiveBytes: 2},
		{Device: 0, Kind: ledger.Managed, LiveBytes: 3, PeakBytes: 4},
		{Device: 0, Kind: ledger.Imported, LiveBytes: 5},
		{Device: 0, Kind: ledger.Pinned, LiveBytes: 6, PeakBytes: 6},
		{Device: 1, Kind: ledger.Pinned, LiveBytes: 3, PeakBytes: 3},
		{Device: 1, Kind: ledger.Device, LiveBytes: 7},
		{Device: 1, Kind: ledger.VMM, LiveBytes: 1},
	}}}}
	var got []string
	for _, row := range totalRows(newPage(Screen{Width: 80}), s)[1:] {
		got = append(got, strings.Join([]string{row[0], row[1], row[2], row[4]}, "|"))
	}
	want := []string{
		"a [7]|cuda:1|8 B|", "|  device|7 B|0 B", "|  vmm|1 B|0 B", "a [7]|unknown|1 B|0 B", "a [7]|cuda:0 managed|3 B|4 B",
		"a [7]|host pinned|9 B|", "a [7]|unknown imported|2 B|0 B", "a [7]|cuda:0 imported|5 B|0 B",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSitesOfUnknownSizeAreLeaksToo(t *testing.T) {
	s := &ledger.Snapshot{
		Processes: []ledger.Process{{PID: 7, Comm: "a"}},
		Sites:     []ledger.Site{{API: "cuMipmappedArrayCreate", Kind: ledger.Array, LiveObjects: 2, Oldest: 1}, {API: "cudaMalloc", Kind: ledger.Device, AllocObjects: 3}},
		Stats:     ledger.Stats{UnknownSizes: 2},
	}
	var b bytes.Buffer
	if err := WriteLeaks(&b, s, reporttest.StackMap{}, report.Options{}, Screen{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Live GPU memory: 0 B in 2 allocations ¹ from 1 site\n", "1.  unknown   cuMipmappedArrayCreate\n    2 allocations, oldest", "¹ 2 allocations of unknown size are counted with 0 bytes\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "\n2.  ") {
		t.Errorf("more than one site, or a share of nothing:\n%s", b.String())
	}
}
