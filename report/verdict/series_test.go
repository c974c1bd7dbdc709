// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// floors makes a series in which a site never had less than this in each window, and reached a new
// maximum.
func floors(list ...uint64) *series {
	v := &series{window: 1, passed: 1, share: 0.1}
	for _, f := range list {
		v.w = append(v.w, ledger.Cohort{AllocObjects: 1, AllocBytes: 1, Floor: f, High: 1})
	}
	return v
}

func TestTheFloorMustRiseByATrend(t *testing.T) {
	for _, c := range []struct {
		name string
		v    *series
		want bool
	}{
		{"rises", floors(0, 10, 20, 30, 40, 50, 60, 70), true},
		{"rises in noise", floors(0, 12, 19, 33, 31, 52, 58, 71), true},
		{"goes up and down without a trend", floors(0, 10, 20, 30, 5, 15, 25, 4, 14, 24, 32), false},
		{"one step", floors(0, 0, 0, 0, 70, 70, 70, 70), false},
		{"wanders upwards, by a little of much", floors(1000, 1010, 1020, 1015, 1030, 1040, 1050, 1060, 1070), false},
		{"rises by a little of much, in each window", floors(1000, 1010, 1020, 1030, 1040, 1050, 1060, 1070, 1080), true},
		{"few steps", floors(0, 10, 10, 10, 20, 20, 20, 30, 30, 30, 40), false},
		{"stops", floors(0, 10, 20, 30, 40, 40, 40, 40), false},
		{"slows down", floors(0, 40, 60, 70, 75, 77, 78, 79), false},
		{"falls", floors(70, 60, 50, 40, 30, 20, 10, 0), false},
		{"too short", floors(0, 10, 20, 30), false},
	} {
		if r, ok := c.v.byLevel(c.v.floors(0, len(c.v.w)), 1); ok != c.want {
			t.Errorf("%s: %v %+v", c.name, ok, r)
		}
	}
}

func TestYoungSurvivorsProveNothing(t *testing.T) {
	window := func(alloc, live uint64) ledger.Cohort {
		return ledger.Cohort{AllocBytes: alloc, LiveBytes: live, Seen: live}
	}
	for _, c := range []struct {
		name string
		w    []ledger.Cohort
		want int
	}{
		{"nothing is freed", []ledger.Cohort{window(9, 9), window(9, 9), window(9, 9), window(9, 9), window(9, 9)}, 5},
		{"a share is freed", []ledger.Cohort{window(9, 3), window(9, 3), window(9, 3), window(9, 3), window(9, 9)}, 4},
		{"what is in use reaches further back", []ledger.Cohort{window(9, 1), window(9, 1), window(9, 1), window(9, 8), window(9, 9)}, 3},
		{"nothing", nil, 0},
	} {
		if got := (&series{w: c.w}).old(); got != c.want {
			t.Errorf("%s: %d windows are old, want %d", c.name, got, c.want)
		}
	}
}
