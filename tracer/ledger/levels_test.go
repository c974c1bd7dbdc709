// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// TestLevelsAreThoseOfSnapshots: all figures of live memory, in random books.
func TestLevelsAreThoseOfSnapshots(t *testing.T) {
	sites := 0
	for k, data := range randomSequences()[:100] {
		l := New(Options{Begin: 100e9, MaxLive: 64})
		var last uint64
		for i := 0; len(data) >= 16; i, data = i+1, data[16:] {
			if last = max(last, stepHostile(l, data).Time); i%200 != 0 && len(data) >= 32 {
				continue
			}
			s, got := l.Snapshot(last, time.Time{}), l.Levels(last, time.Time{})
			if want := s.Parts(); !reflect.DeepEqual(got.Parts(), want) {
				t.Fatalf("sequence %d, event %d: parts %+v, want %+v", k, i, got.Parts(), want)
			}
			for _, of := range []*Snapshot{s, got} {
				of.Sites = slices.DeleteFunc(of.Sites, func(x Site) bool { return x.LiveBytes == 0 })
				for n := range of.Sites {
					x := &of.Sites[n]
					x.AllocObjects, x.AllocBytes, x.Growth, x.History, x.Owners, x.MoreOwners, x.Holders = 0, 0, 0, nil, nil, false, nil
					x.Window, x.FirstWindow, x.Cohorts, x.Pasts, x.Evicted, x.Crowded, x.Peak, x.Oldest = 0, 0, nil, Pasts{}, 0, 0, 0, 0
					x.LiveObjects = 0 // some take no bytes
				}
			}
			s.Failures, s.Objects, s.Walks = nil, nil, nil
			for n := range s.Tensors {
				s.Tensors[n].Error, got.Tensors[n].Error = 0, 0 // of sites that have nothing too
			}
			if sites += len(s.Sites); len(got.Sites) != len(s.Sites) {
				t.Fatalf("sequence %d, event %d: %d sites, want %d:\n%+v\n%+v", k, i, len(got.Sites), len(s.Sites), got.Sites, s.Sites)
			}
			if d := differs(got, s); d != "" {
				t.Fatalf("sequence %d, event %d:\n%s", k, i, d)
			}
		}
	}
	if sites < 1000 {
		t.Errorf("only %d sites were compared", sites)
	}
}
