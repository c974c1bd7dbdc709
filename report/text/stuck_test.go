// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func cacheView(t *testing.T, s *ledger.Snapshot, o report.Options, width int) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteCache(&b, s, reporttest.StuckStacks(), o, Screen{Width: width}); err != nil {
		t.Fatal(err)
	}
	reporttest.CheckText(t, b.String(), width)
	return b.String()
}

func TestCacheViewNamesTheLinesThatHoldSegments(t *testing.T) {
	s := reporttest.Stuck()
	for _, width := range []int{40, 80, 120} {
		reporttest.Golden(t, fmt.Sprintf("cache%d.txt", width), []byte(cacheView(t, s, report.Options{}, width)))
	}
	for width := minWidth; width <= 130 && !t.Failed(); width++ {
		cacheView(t, s, report.Options{Top: 2}, width)
	}
}

func TestCacheViewOfALateAttachGivesWhatIsUnknown(t *testing.T) {
	s := reporttest.Stuck()
	s.Tensors[0].Cached, s.Tensors[0].Segments = 0, 0
	s.Stuck = []ledger.Stuck{{}}
	text := strings.Join(strings.Fields(cacheView(t, s, report.Options{}, 80)), " ")
	for _, want := range []string{
		"There is no cache in segments that were allocated since the attach.",
		"! 4.00 GiB of cache lie in segments from before the attach: what holds those is unknown",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the view lacks %q:\n%s", want, text)
		}
	}
}

func TestSummaryShowsWhatHoldsTheCacheOnlyWhereItMatters(t *testing.T) {
	s := reporttest.Stuck()
	summary := func() string {
		var b bytes.Buffer
		if err := WriteSummary(&b, s, reporttest.StuckStacks(), report.Options{}, Screen{}); err != nil {
			t.Fatal(err)
		}
		reporttest.CheckText(t, b.String(), 80)
		return b.String()
	}
	const title = "What keeps PyTorch's cache from the driver: python3 [4242] on cuda:0\n"
	if text := summary(); !strings.Contains(text, title) {
		t.Errorf("summary without what holds the cache:\n%s", text)
	}
	s.Processes[0].End = s.End
	if text := summary(); strings.Contains(text, title) {
		t.Errorf("summary of a process that has ended, with its cache:\n%s", text)
	}
	if text := cacheView(t, s, report.Options{}, 80); !strings.Contains(text, "from the driver: python3 [4242] ended on cuda:0\n") {
		t.Errorf("view of a process that has ended:\n%s", text)
	}
	s.Processes[0].End, s.Tensors[0].Reserved = 0, 21*s.Stuck[0].Free
	if text := summary(); strings.Contains(text, title) {
		t.Errorf("summary with a cache that does not matter:\n%s", text)
	}
}

func TestOOMPageNamesTheLinesThatHoldTheCache(t *testing.T) {
	s, st := reporttest.Stuck(), reporttest.StuckStacks()
	o := report.OOM{
		PID: 4242, Comm: "python3", Time: s.End - reporttest.Second/5, Stack: 1, API: "torch", Kind: ledger.Tensor, Size: 2 * reporttest.GiB,
		Allocated: s.Tensors[0].Allocated, Reserved: s.Tensors[0].Reserved, GPUs: s.GPUs,
	}
	o.GPUs[0].Total, o.GPUs[0].Used = 20*reporttest.GiB, 19*reporttest.GiB
	for _, width := range []int{40, 80, 120} {
		var b bytes.Buffer
		if err := WriteOOM(&b, s, st, o, report.Options{Top: 2}, Screen{Width: width}); err != nil {
			t.Fatal(err)
		}
		reporttest.CheckText(t, b.String(), width)
		if width == 80 {
			reporttest.Golden(t, "oom-stuck80.txt", b.Bytes())
		}
	}
}
