// SPDX-License-Identifier: Apache-2.0

package intervals

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// model is a Set as a sorted list.
type model []Interval[int]

func (m *model) cut(start, end uint64, partly bool) (list []Interval[int]) {
	*m = slices.DeleteFunc(*m, func(x Interval[int]) bool {
		cut := x.Start < end && x.End > start && (partly || x.Start >= start && x.End <= end)
		if cut {
			list = append(list, x)
		}
		return cut
	})
	return list
}

func TestASetIsASortedList(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var s Set[int]
		var m model
		for step := range 4000 {
			start := rng.Uint64N(40000)
			end := start + 1 + rng.Uint64N(20)
			var got, want []Interval[int]
			switch n := rng.IntN(60); {
			case n < 58 && !s.Overlaps(start, end):
				x := Interval[int]{start, end, step}
				s.Insert(x)
				at, _ := slices.BinarySearchFunc(m, x, func(a, b Interval[int]) int { return int(a.Start) - int(b.Start) })
				m = slices.Insert(m, at, x)
			case n == 58:
				end += rng.Uint64N(2000)
				got, want = s.Cut(start, end), m.cut(start, end, true)
			case n == 59:
				end += rng.Uint64N(2000)
				got, want = s.CutInside(start, end), m.cut(start, end, false)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: [%d, %d) cuts %v, want %v", seed, start, end, got, want)
			}
			check(t, &s, m, start, end)
		}
		if s.Len() < 200 {
			t.Errorf("seed %d: only %d intervals", seed, s.Len())
		}
	}
}

// check compares what a set and the model answer about [start, end).
func check(t *testing.T, s *Set[int], m model, start, end uint64) {
	t.Helper()
	var overlap, from []Interval[int]
	for x := range s.Overlap(start, end) {
		overlap = append(overlap, *x)
	}
	for x := range s.From(start) {
		if from = append(from, *x); len(from) == 2 {
			break
		}
	}
	at, before := Interval[int]{}, uint64(0)
	var wantOverlap, wantFrom []Interval[int]
	wantAt := Interval[int]{}
	for _, x := range m {
		switch {
		case x.End <= start:
			before = x.End
		case len(wantFrom) < 2:
			wantFrom = append(wantFrom, x)
		}
		if x.Start < end && x.End > start {
			wantOverlap = append(wantOverlap, x)
		}
		if x.Start <= start && x.End > start {
			wantAt = x
		}
	}
	if x := s.At(start); x != nil {
		at = *x
	}
	got := fmt.Sprint(s.Len(), overlap, from, at, s.Overlaps(start, end), s.EndBefore(start))
	want := fmt.Sprint(len(m), wantOverlap, wantFrom, wantAt, len(wantOverlap) > 0, before)
	if got != want {
		t.Fatalf("[%d, %d): %s, want %s", start, end, got, want)
	}
}
