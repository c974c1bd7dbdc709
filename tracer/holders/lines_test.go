// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestLinesSumTheStoragesOfAHolder(t *testing.T) {
	r := walkImage(t, syntheticJob(), Options{})
	var bytes, storages uint64
	var b strings.Builder
	for _, l := range r.Lines() {
		bytes += l.Bytes
		storages += l.Storages
		fmt.Fprintf(&b, "%d %d %s %s, %d %s with %d, found %v\n", l.Bytes>>20, l.Storages, l.Device, l.Holder, l.Containers, l.Container, l.Entries, l.Found)
	}
	if _, all := r.Held(); bytes != all || storages != uint64(len(r.Storages)) {
		t.Errorf("lines have %d bytes in %d storages, the walk %d in %d", bytes, storages, all, len(r.Storages))
	}
	golden(t, "lines", b.String())
}

// TestGrownNamesTheListThatGrew: a list got two of three storages between two walks, in half a
// minute.
func TestGrownNamesTheListThatGrew(t *testing.T) {
	before, after := walkImage(t, growingJob(0), Options{}), walkImage(t, growingJob(2), Options{})
	after.At = before.At.Add(30 * time.Second)
	list := Grown(before, after)
	if len(list) != 1 {
		t.Fatalf("%d lines grew, want 1: %+v", len(list), list)
	}
	g := list[0]
	if g.Holder != "trainer.history[*]" || g.Class != "Trainer.history[*]" || g.Bytes != 2<<20 || g.Storages != 2 || g.PerMinute() != 4<<20 {
		t.Errorf("grown is %+v", g)
	}
	if len(Grown(after, after)) != 0 {
		t.Error("a walk grew against itself")
	}
}

// TestEntriesAreThoseThatAContainerHasMore: the same list has more entries later.
func TestEntriesAreThoseThatAContainerHasMore(t *testing.T) {
	before, after := walkImage(t, growingJob(0), Options{}), walkImage(t, growingJob(2), Options{})
	for i := range after.Storages {
		if c := &after.Storages[i].Container; c.Entries == 5 {
			for k := range before.Storages {
				if before.Storages[k].Container.Entries == 3 {
					c.Address = before.Storages[k].Container.Address
				}
			}
		}
	}
	if list := Grown(before, after); len(list) != 1 || list[0].Entries != 2 {
		t.Errorf("grown are %+v", list)
	}
}
