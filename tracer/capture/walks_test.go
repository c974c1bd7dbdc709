// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

type toldWalks []ledger.Walk

func (b *toldWalks) Apply(*ledger.Event) {}
func (b *toldWalks) Tell(in ledger.Input) {
	if walk, ok := in.(ledger.Walk); ok {
		*b = append(*b, walk)
	}
}

func largeWalk() ledger.Walk {
	walk := ledger.Walk{PID: 7, Time: 8, Took: 9, Problems: []string{"a problem"}}
	for i := range 2*holdersPart + 1 {
		walk.Holders = append(walk.Holders, ledger.Holder{Device: -1, Path: fmt.Sprint("h", i), Frames: []string{"__main__"}, Class: "C", Also: []string{"x"}, Container: "list", Containers: 2, Entries: -1, Found: true})
	}
	for i := range uint64(2*storagesPart + 1) {
		walk.Storages = append(walk.Storages, ledger.Storage{Address: 1<<63 - i<<40, Bytes: i, Block: i % 3, Holder: uint32(i % 5), InMotion: i%2 == 0, Allocation: i%3 == 0})
	}
	return walk
}

func TestWalksOfManyPartsComeBackWhole(t *testing.T) {
	walk := largeWalk()
	parts := walkInputs(&walk)
	var a applier
	var got toldWalks
	for _, part := range parts {
		if n := size(part); n > batchBytes {
			t.Errorf("a part takes %d bytes", n)
		}
		if err := a.apply(part, &got); err != nil {
			t.Fatal(err)
		}
	}
	if len(parts) < 4 || len(got) != 1 || !reflect.DeepEqual(got[0], walk) {
		t.Errorf("%d parts, %d walks", len(parts), len(got))
	}
}

func TestAWalkWithAMissingPartIsDropped(t *testing.T) {
	walk := largeWalk()
	for missing := range walkInputs(&walk) {
		var a applier
		var got toldWalks
		for i, part := range walkInputs(&walk) {
			if i == missing {
				continue
			}
			if err := a.apply(part, &got); err != nil {
				t.Fatal(err)
			}
		}
		if len(got) != 0 {
			t.Errorf("without part %d there is a walk", missing)
		}
	}
	var a applier
	if err := a.apply(&wire.Input{What: &wire.Input_Walk{Walk: &wire.Walk{Address: []int64{1}}}}, &toldWalks{}); err == nil {
		t.Error("columns of different lengths are read")
	}
}
