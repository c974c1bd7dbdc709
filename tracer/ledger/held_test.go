// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"reflect"
	"testing"
)

func TestGrownComparesByPathAndDevice(t *testing.T) {
	held := func(path string, device int32, bytes, storages uint64, entries int) Held {
		return Held{Holder: Holder{Path: path, Device: device, Entries: entries}, Bytes: bytes, Storages: storages}
	}
	before := []Held{held("model", 0, 100, 4, -1), held("history[*]", 0, 10, 1, 1), held("cache", 0, 50, 5, 5)}
	after := []Held{held("model", 0, 100, 4, -1), held("history[*]", 0, 40, 4, 4), held("cache", 0, 20, 2, 2), held("history[*]", 1, 50, 5, 5), held("step", 0, 1, 1, -1)}
	want := []HeldGrowth{{3, 50, 5, 5}, {1, 30, 3, 3}, {4, 1, 1, 0}}
	if got := Grown(before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("grown are %+v, want %+v", got, want)
	}
	if got := Grown(after, after); got != nil {
		t.Errorf("a walk grew against itself: %+v", got)
	}
}

func TestPartsNeverGetMoreThanTheyHadOrThereIs(t *testing.T) {
	parts := []SiteHolder{{3, 60}, {5, 30}}
	for _, c := range []struct {
		whole, total uint64
		want         []SiteHolder
	}{
		{100, 100, parts},
		{100, 1000, parts},
		{100, 50, []SiteHolder{{3, 30}, {5, 15}}},
		{100, 1, []SiteHolder{{3, 1}}},
		{100, 0, nil},
		{70, 70, []SiteHolder{{3, 60}, {5, 10}}},
		{0, 10, nil},
	} {
		if got := Divide(parts, c.whole, c.total); !reflect.DeepEqual(got, c.want) {
			t.Errorf("of %d now %d: %v, want %v", c.whole, c.total, got, c.want)
		}
	}
}
