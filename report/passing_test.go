// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// TestWhatComesAndGoesHasNotGrown: of eight windows of a second, a site's bytes that live now were
// allocated in each (a leak) or in the last one (a step's), and its floor rises or not.
func TestWhatComesAndGoesHasNotGrown(t *testing.T) {
	const mib = 1 << 20
	rising := func(i uint64) uint64 { return i * 100 * mib }
	constant := func(i uint64) uint64 { return min(i, 1) * 700 * mib }
	none := func(uint64) uint64 { return 0 }
	site := func(live [8]uint64, floor func(uint64) uint64, holder int) ledger.Site {
		x := ledger.Site{Kind: ledger.Tensor, Window: uint64(time.Second)}
		for i, n := range live {
			x.LiveBytes += n * mib
			x.Cohorts = append(x.Cohorts, ledger.Cohort{LiveBytes: n * mib, Floor: floor(uint64(i))})
		}
		if holder >= 0 {
			x.Holders = []ledger.SiteHolder{{Holder: holder, Bytes: x.LiveBytes}}
		}
		return x
	}
	ofCUDA := func(x ledger.Site) ledger.Site {
		x.Kind = ledger.Device
		return x
	}
	each, latest := [8]uint64{100, 100, 100, 100, 100, 100, 100, 100}, [8]uint64{7: 800}
	for _, c := range []struct {
		name  string
		path  string
		site  ledger.Site
		grows bool
	}{
		{"a list that grows", "history[*]", site(each, rising, 0), true},
		{"a tensor that is copied into a longer one", "all", site(latest, rising, 0), true},
		{"a list of what CUDA gave out", "buffers[*]", ofCUDA(site(each, rising, 0)), true},
		{"gradients", "model.*.grad", site(latest, none, 0), false},
		{"activations", NoHolder, site(latest, none, -1), false},
		{"the loss of the step before, which took the place of an older one", "loss", site(latest, constant, 0), false},
	} {
		k := &Kept{At: uint64(8 * time.Second), Between: 8 * time.Second, held: []HolderLine{{Held: ledger.Held{Holder: ledger.Holder{Path: c.path, Retention: retention.Read(0, c.path)}}}}}
		k.Grown = []GrownLine{{HolderLine: k.held[0], By: ledger.HeldGrowth{Bytes: 800 * mib}}}
		k.passing(&ledger.Snapshot{Sites: []ledger.Site{c.site}}, nil)
		if len(k.Grown)+len(k.Passing) != 1 || (len(k.Grown) == 1) != c.grows {
			t.Errorf("%s: %d grew, %d come and go", c.name, len(k.Grown), len(k.Passing))
		}
	}
}
