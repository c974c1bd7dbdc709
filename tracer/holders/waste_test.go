// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/pythontest"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// TestWhatCouldBeFreed: a walk of the real PyTorch finds dead weight of each kind to the byte, and
// none in the twins that only look like it.
func TestWhatCouldBeFreed(t *testing.T) {
	script, err := filepath.Abs("../../testdata/holders/waste.py")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range torches(t) {
		for _, twins := range []string{"", "twins"} {
			t.Run(name+" "+twins, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "truth.json")
				p := pythontest.Start(t, command(script, file, twins))
				r, err := Walk(context.Background(), p, Options{})
				if err != nil {
					t.Fatal(err)
				}
				var want []struct {
					Kind   WasteKind
					Holder string
					Bytes  uint64
				}
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(text, &want); err != nil {
					t.Fatal(err)
				}
				dead := uint64(0)
				for _, x := range want {
					dead += x.Bytes
				}
				if (dead == 0) != (twins != "") || len(want) < 2 {
					t.Fatalf("%d bytes in %d cases", dead, len(want))
				}
				left := map[int]bool{}
				for i := range r.Waste {
					left[i] = true
				}
				for _, x := range want {
					sum, found := uint64(0), false
					for i, w := range r.Waste {
						if w.Kind == x.Kind && strings.HasPrefix(w.Holder, x.Holder) && w.Device == "cuda:0" {
							sum, found = sum+w.Bytes, true
							delete(left, i)
						}
					}
					if sum != x.Bytes || !found {
						t.Errorf("%s %s: %d bytes, want %d", x.Kind, x.Holder, sum, x.Bytes)
					}
				}
				for i := range left {
					t.Errorf("no waste: %+v", r.Waste[i])
				}
				ways := map[string]retention.Set{}
				for _, l := range r.Lines() {
					ways[l.Thing] |= l.Retention
				}
				for thing, way := range map[string]retention.Set{"own_keys.data": retention.WeakKeys | retention.OwnKeys, "live_keys.data": retention.WeakKeys, "state": retention.Graph} {
					if got := ways[thing] &^ retention.Known; got != way {
						t.Errorf("%s: kept in the ways %b, want %b", thing, got, way)
					}
				}
				all, whole := uint64(0), uint64(0)
				for _, w := range r.Waste {
					if all += w.Bytes; w.Kind != WasteCopies {
						whole += w.Whole
					}
				}
				for _, s := range r.Storages {
					if whole -= min(whole, s.Bytes); s.Bytes > 1<<40 {
						t.Errorf("%+v", s)
					}
				}
				if whole > 0 {
					t.Errorf("%d bytes more than there are", whole)
				}
				if t.Failed() {
					for _, l := range r.Lines() {
						t.Logf("%9d in %2d %s %v", l.Bytes, l.Storages, l.Holder, l.Also)
					}
				}
			})
		}
	}
}
