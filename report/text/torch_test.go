// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestTorchInText(t *testing.T) {
	s, st := reporttest.TorchSnapshot(), reporttest.TorchStacks()
	for width := minWidth; width <= 120; width++ {
		var b bytes.Buffer
		if err := errors.Join(
			WriteSummary(&b, s, st, report.Options{}, Screen{Width: width}),
			WriteLeaks(&b, s, st, report.Options{Top: 3}, Screen{Width: width}),
		); err != nil {
			t.Fatal(err)
		}
		if reporttest.CheckText(t, b.String(), width); t.Failed() {
			t.Fatalf("at width %d", width)
		}
		if width == 80 {
			reporttest.Golden(t, "torch80.txt", b.Bytes())
		}
	}
}

func TestTheCacheIsNoLeak(t *testing.T) {
	const gib = 1024 * reporttest.MiB
	s := reporttest.TorchSnapshot()
	list := report.Leaks(s, report.Options{})
	if len(list) != len(s.Sites)-3 || slices.ContainsFunc(list, func(x ledger.Site) bool { return x.Segment }) {
		t.Errorf("%d sites, want %d and no segments", len(list), len(s.Sites)-3)
	}
	if x := list[0]; x.Kind != ledger.Tensor || x.Growth == 0 {
		t.Errorf("the first site is %+v, want the tensors that grow", x)
	}
	r := json.NewLeaks(s, reporttest.TorchStacks(), report.Options{})
	if want := (9300+900+2048+192+640+200+4096+2048)*reporttest.MiB + 0; r.LiveBytes != want || r.CacheBytes != 3*gib+300*reporttest.MiB {
		t.Errorf("%d bytes live and %d cached, want %d and %d", r.LiveBytes, r.CacheBytes, want, 3*gib+300*reporttest.MiB)
	}

	s.Sites = slices.DeleteFunc(s.Sites, func(x ledger.Site) bool { return !x.Segment })
	for i := range s.Sites {
		s.Sites[i].Tensors = 0 // nothing but a warm cache
	}
	var b bytes.Buffer
	if err := WriteLeaks(&b, s, reporttest.TorchStacks(), report.Options{}, Screen{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"No GPU memory allocated since the attach is live ²\nnot counted, as PyTorch keeps it for later tensors: 19.0 GiB of cache\n", "PyTorch cache, under what made it grow: 19.0 GiB, kept for later tensors\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestSegmentsAreShownWholeWhereNothingReportsTensors(t *testing.T) {
	const gib = 1024 * reporttest.MiB
	s := reporttest.TorchSnapshot()
	s.Tensors = nil
	list := report.Leaks(s, report.Options{})
	if x := list[0]; !x.Segment || x.LiveBytes != 12*gib {
		t.Errorf("the first site is %+v, want the largest segments", x)
	}
	for _, c := range []struct {
		name  string
		stack uint64
		kind  ledger.Kind
		seg   bool
		want  string
	}{
		{"cudaMallocAsync", 9, ledger.Async, false, "PyTorch's backend cudaMallocAsync reports none"},
		{"a pluggable allocator", 10, ledger.Device, false, "its pluggable allocator reports none"},
		{"by stack alone", 4, ledger.Device, false, "none were reported, or they were not traced"},
		{"by address alone", 6, ledger.Device, true, "none were reported, or they were not traced"},
		{"no PyTorch", 6, ledger.VMM, false, ""},
		{"pinned memory is no segment", 9, ledger.Pinned, false, ""},
	} {
		s.Sites = []ledger.Site{{Process: 2, Stack: c.stack, Kind: c.kind, Segment: c.seg, LiveObjects: 1, LiveBytes: 1}}
		if got := report.SegmentsOnly(s, reporttest.TorchStacks(), 2); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	s = reporttest.TorchSnapshot()
	var b bytes.Buffer
	if err := WriteSummary(&b, s, reporttest.TorchStacks(), report.Options{}, Screen{}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(b.String(), "segments only"); got != 1 || !strings.Contains(b.String(), "\nserve [5000]: segments only, no tensors: PyTorch's backend") {
		t.Errorf("segments only is said %d times in\n%s", got, b.String())
	}
}
