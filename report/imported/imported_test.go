// SPDX-License-Identifier: Apache-2.0

package imported

import (
	"reflect"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func books() *ledger.Snapshot {
	return &ledger.Snapshot{
		Processes: []ledger.Process{{PID: 700, Comm: "server"}, {PID: 42, Comm: "train\x1b[31m", End: 9}, {PID: 41, Comm: "loader"}, {PID: 701, Comm: "viewer"}, {PID: 702, Comm: "gone", End: 5}},
		Sites: []ledger.Site{
			{Process: 3, Kind: ledger.Imported, LiveObjects: 2},
			{Process: 0, Kind: ledger.Imported, LiveBytes: 3 << 30, LiveObjects: 2, Owners: []ledger.Owner{{Process: 1}, {Process: 2, Stack: 1}, {Process: 2, Stack: 2}}},
			{Process: 0, Kind: ledger.Imported, LiveBytes: 1 << 30, LiveObjects: 1, Owners: []ledger.Owner{{Process: 1, Stack: 4}, {Process: 99}}, MoreOwners: true},
			{Process: 0, Kind: ledger.Device, LiveBytes: 1 << 30, LiveObjects: 1},
			{Process: 2, Kind: ledger.Imported, AllocBytes: 1 << 30, AllocObjects: 1},                                               // closed again
			{Process: 4, Kind: ledger.Imported, LiveBytes: 1 << 30, LiveObjects: 1, Owners: []ledger.Owner{{Process: 1, Stack: 4}}}, // it has ended
		},
	}
}

// TestWhoImportedWhoseMemory of all sites of a process, each owner once.
func TestWhoImportedWhoseMemory(t *testing.T) {
	want := []Memory{
		{Process: 0, Bytes: 4 << 30, Count: 3, More: true, Owners: []Owner{{41, "loader", false}, {42, "train[31m", true}}},
		{Process: 3, Count: 2, More: true},
	}
	got := Of(books())
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
	for i, want := range []string{
		"has imported 4.00 GiB of loader [41]; and of train[31m [42], which has ended; and of processes that are not traced",
		"has imported 2 allocations of unknown size of processes that are not traced",
	} {
		if text := got[i].Text(); text != want {
			t.Errorf("got  %q\nwant %q", text, want)
		}
	}
	if many := (&Memory{Bytes: 1, Owners: make([]Owner, 20)}).Text(); strings.Count(many, "[0]") != mostOwners || !strings.HasSuffix(many, "; and of processes that are not traced") {
		t.Error(many)
	}
}

// TestOnlyMemoryOfEndedProcessesIsRemarked: that of a running one is in its owner's sums.
func TestOnlyMemoryOfEndedProcessesIsRemarked(t *testing.T) {
	s := books()
	if list := Remarks(s); len(list) != 1 || !strings.HasPrefix(list[0], "server [700] has imported 4.00 GiB of ") || strings.ContainsRune(list[0], '\x1b') {
		t.Errorf("%q", list)
	}
	s.Processes[1].End = 0
	if list := Remarks(s); len(list) > 0 {
		t.Errorf("no owner has ended: %q", list)
	}
}
