// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"slices"
	"testing"
)

// TestReadingsAreTakenBetweenTheEventsBeforeAndAfterThem, in the order of their times, whoever made them first.
func TestReadingsAreTakenBetweenTheEventsBeforeAndAfterThem(t *testing.T) {
	var r readings
	var got []uint64
	add := func(time uint64) { r.add(time, func() { got = append(got, time) }) }
	for _, time := range []uint64{30, 10, 20, 20, 40} {
		add(time)
	}
	for _, step := range []struct {
		event uint64
		want  []uint64
	}{{10, nil}, {11, []uint64{10}}, {25, []uint64{10, 20, 20}}, {5, []uint64{10, 20, 20}}, {31, []uint64{10, 20, 20, 30}}} {
		if r.passed(step.event); !slices.Equal(got, step.want) {
			t.Fatalf("before the event at %d: %v, want %v", step.event, got, step.want)
		}
	}
	if r.takeAll(); len(got) != 5 || r.upTo != 31 {
		t.Errorf("in the end %v, and all events up to %d", got, r.upTo)
	}
}
