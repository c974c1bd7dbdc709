// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/holders"
)

// TestGrownNamesTheListThatGrew: losses were kept from walk to walk, in half a minute.
func TestGrownNamesTheListThatGrew(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	at := func(second, losses int) *holders.Result {
		return reporttest.TrainingWalk(begin.Add(time.Duration(second)*time.Second), 3, 4, losses)
	}
	h := Holders{Before: at(0, 2), During: []*holders.Result{at(10, 4), at(20, 7)}, Result: at(30, 9)}
	list, doubtful := h.Grown()
	if len(list) != 2 || len(doubtful) != 0 || h.Walks() != 4 {
		t.Fatalf("%d lines grew, want 2: %+v; unclear: %+v", len(list), list, doubtful)
	}
	if g := list[0]; g.Path != "trainer.losses[*] (autograd graph)" || g.On != "cuda:0" || g.By.Bytes != 280<<20 || g.By.Storages != 7 || g.PerMinute != 560<<20 {
		t.Errorf("grown is %+v", g)
	}
	h.During[0], h.During[1] = at(10, 8), at(20, 3) // a list that each epoch empties
	if list, doubtful = h.Grown(); len(list) != 0 || len(doubtful) != 2 {
		t.Errorf("after %+v grew, %+v is unclear", list, doubtful)
	}
	h.During = nil
	if list, doubtful = h.Grown(); len(list) != 0 || len(doubtful) != 2 {
		t.Errorf("of two walks %+v grew, %+v is unclear", list, doubtful)
	}
	if h.Device = "cuda:1"; len(h.Lines()) == 0 {
		list, doubtful = h.Grown()
		if len(list)+len(doubtful) != 0 {
			t.Error("another device grew")
		}
	}
}
