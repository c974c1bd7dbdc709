// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestEverybodyHasTheSameVerdicts(t *testing.T) {
	s := reporttest.Snapshot()
	var told *report.Judgement
	w := New(reporttest.Stacks(), func(_ *ledger.Snapshot, j *report.Judgement) { told = j })
	v := w.For(s)
	if v == nil || v != w.Latest() || v.At != s.End {
		t.Fatalf("verdicts: %+v", v)
	}
	leaking, sites := 0, 0
	for _, x := range v.Lines {
		if x.Class == verdict.Leaking {
			leaking++
		}
	}
	for _, x := range v.Sites(s) {
		if x.Class == verdict.Leaking.String() {
			sites++
		}
	}
	if leaking != 1 || told.Leaking() != 1 || sites != 1 {
		t.Errorf("%d lines leak for the metrics, %d for the alarm, %d sites for the page", leaking, told.Leaking(), sites)
	}
}

// Verdicts fit later snapshots, in which sites have other places.
func TestVerdictsFitALaterSnapshot(t *testing.T) {
	s := reporttest.Snapshot()
	w := New(reporttest.Stacks(), nil)
	list := w.For(s).Sites(s)
	later := *s
	later.Sites = append([]ledger.Site{{Stack: 99, API: "new"}}, s.Sites...)
	shifted := w.Latest().Sites(&later)
	if shifted[0] != (report.SiteVerdict{}) {
		t.Errorf("a new site has the verdict %+v", shifted[0])
	}
	for i := range list {
		if shifted[i+1] != list[i] {
			t.Errorf("site %d: %+v, want %+v", i, shifted[i+1], list[i])
		}
	}
}

func TestVerdictsAreMadeAtMostEachTenSeconds(t *testing.T) {
	var count atomic.Int32
	w := New(nil, func(*ledger.Snapshot, *report.Judgement) { count.Add(1) })
	if !w.IsDue() || w.Latest() != nil {
		t.Error("a new one has verdicts")
	}
	s := reporttest.Snapshot()
	w.For(s)
	for range 3 {
		w.Offer(s)
		w.For(s)
	}
	if pause := time.Until(w.due); pause < least-time.Second || pause > longest || w.IsDue() || count.Load() != 1 {
		t.Errorf("%d judgements, the next is due in %v", count.Load(), pause)
	}
}

func TestPanicsAreCountedAndTheLastVerdictsStay(t *testing.T) {
	w := New(nil, nil)
	s := reporttest.Snapshot()
	v := w.For(s)
	w.due = time.Time{}
	<-w.offer(&ledger.Snapshot{Sites: []ledger.Site{{Process: 7}}})
	var n uint64
	for _, times := range w.Panics() {
		n += times
	}
	if n != 1 || w.Latest() != v || w.IsDue() {
		t.Errorf("%d panics, the same verdicts: %v, due: %v", n, w.Latest() == v, w.IsDue())
	}
	var none *Verdicts
	if list := none.Sites(s); len(list) != len(s.Sites) || none.Advice() != nil {
		t.Errorf("without verdicts: %+v", list)
	}
}
