// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestHistoryIsBounded(t *testing.T) {
	var h History
	for i := range uint64(1_000_000) {
		h.Record(0, i*i, i)
	}
	if len(h.changes) > MaxChanges || cap(h.changes) > MaxChanges {
		t.Errorf("%d changes in %d places, want at most %d", len(h.changes), cap(h.changes), MaxChanges)
	}
}

// TestHistoriesAddUp: the sum of two sites has the sum of their live bytes at each moment.
func TestHistoriesAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var a, b History
		for now := uint64(0); now < 100e9; now += rng.Uint64N(10e9) {
			a.Record(0, now, rng.Uint64N(100))
			if rng.Uint64N(3) == 0 {
				b.Record(0, now+rng.Uint64N(1e9), rng.Uint64N(100))
			}
		}
		sum := History{changes: slices.Clone(a.changes), shift: a.shift}
		sum.add(&b)
		for _, c := range sum.changes {
			if c.live != a.At(c.time)+b.At(c.time) {
				t.Fatalf("at %d: %d, want %d and %d", c.time, c.live, a.At(c.time), b.At(c.time))
			}
		}
	}
}

func TestWindowsOfARecentPastAreTheLongerTheOlder(t *testing.T) {
	list := []uint64{0, 1, 11, 12, 13, 100, 4095, 4096, 460_000, math.MaxUint64 >> RecentShift}
	for i := range uint64(2000) {
		list = append(list, i, i*i*i+i%7)
	}
	for _, newest := range list {
		for _, first := range []uint64{0, newest / 2, newest} {
			end, n := newest+1, 0
			for place, x := range RecentSpans(newest, first) {
				size := x.To - x.From
				if middle := (x.From + x.To) / 2; RecentPlace(newest, middle) != n || RecentSize(newest, middle) < size {
					t.Fatalf("newest %d: %d is in window %d of at most %d, want %d of %d", newest, middle, RecentPlace(newest, middle), RecentSize(newest, middle), n, size)
				}
				if x.To != end || x.From%size != 0 || place != n || RecentPlace(newest, x.From) != n || RecentPlace(newest, x.To-1) != n {
					t.Fatalf("newest %d: window %d is %+v, the next begins at %d", newest, place, x, end)
				}
				if age := newest + 1 - x.From; size > 1 && 3*size > age {
					t.Errorf("newest %d: a window of %d is only %d old", newest, size, age)
				}
				end, n = x.From, n+1
			}
			if end > first || n > MaxRecent || RecentPlace(newest, first) != n-1 {
				t.Errorf("newest %d: %d windows from %d on, want them from %d on", newest, n, end, first)
			}
		}
		for level := 0; RecentStart(newest, level) > 0; level++ {
			size := uint64(1) << (RecentStep * level)
			if start := RecentStart(newest, level); start%(4*size) != 0 || newest/size-start/size < RecentKept || newest/size-start/size >= RecentKept+4 {
				t.Errorf("newest %d: horizon %d begins at %d", newest, level, start)
			}
		}
	}
}

// TestCarryKnowsEveryField: whoever adds a field decides here whether Carry and CarryRecent carry
// it. Fields after a bar follow from others.
func TestCarryKnowsEveryField(t *testing.T) {
	for of, known := range map[reflect.Type]string{
		reflect.TypeFor[Track]():   "History own shared |",
		reflect.TypeFor[History](): "changes shift |",
		reflect.TypeFor[cohorts](): "base live peak floor parts levels highs last shift |",
		reflect.TypeFor[levels]():  "floor area now until recents |",
		reflect.TypeFor[windows](): "list recent | next",
		reflect.TypeFor[recents](): "first newest until now lows records |",
		reflect.TypeFor[low]():     "floor kept young area |",
		reflect.TypeFor[Record]():  "Floor Lowest Kept Young |",
		reflect.TypeFor[window]():  "alloc live allocObjects liveObjects |",
	} {
		fields := map[string]bool{"|": true}
		for i := range of.NumField() {
			fields[of.Field(i).Name] = true
		}
		for _, name := range strings.Fields(known) {
			if !fields[name] {
				t.Errorf("%s has no field %s any more", of, name)
			}
			delete(fields, name)
		}
		for name := range fields {
			t.Errorf("%s.%s: does Carry carry it?", of, name)
		}
	}
}
