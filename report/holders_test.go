// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/reporttest"
)

// TestGrownNamesTheListThatGrew: seven losses were kept between two walks, in half a minute.
func TestGrownNamesTheListThatGrew(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	h := Holders{Before: reporttest.TrainingWalk(begin, 3, 4, 2), Result: reporttest.TrainingWalk(begin.Add(30*time.Second), 3, 4, 9)}
	list := h.Grown()
	if len(list) != 2 {
		t.Fatalf("%d lines grew, want 2: %+v", len(list), list)
	}
	if g := list[0]; g.Path != "trainer.losses[*] (autograd graph)" || g.On != "cuda:0" || g.By.Bytes != 280<<20 || g.By.Storages != 7 || g.PerMinute != 560<<20 {
		t.Errorf("grown is %+v", g)
	}
	if h.Device = "cuda:1"; len(h.Grown()) != 0 {
		t.Error("another device grew")
	}
}
