// SPDX-License-Identifier: Apache-2.0

package cudaapi

import (
	"testing"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestEveryNameOfALayerHasOneRow(t *testing.T) {
	for _, layer := range []Layer{Runtime, Driver} {
		for _, brief := range []bool{false, true} {
			seen := map[string]bool{}
			for _, name := range Names(layer, brief) {
				id, f := Named(name, layer)
				if ByID(uint8(id)) != f || f.Name != name || f.Brief != brief || seen[name] {
					t.Errorf("%s: row %d is %+v", name, id, f)
				}
				seen[name] = true
			}
			if len(seen) == 0 {
				t.Errorf("layer %d has no functions with brief %v", layer, brief)
			}
		}
	}
	if ByID(uint8(len(Table))) != nil {
		t.Error("there is a row after the last")
	}
}

// event is a successful allocation by a function of the driver.
func event(name string) *bpf.Event {
	id, _ := Named(name, Driver)
	return &bpf.Event{Kind: bpf.KindAlloc, Function: uint8(id), Api: uint8(id), Pid: 7, Address: 0x7f00_0000_1000, Size: 1 << 32}
}

func TestTranslateReadsWhatTheRowNames(t *testing.T) {
	got, ok := Translate(event("cuMemAlloc_v2"), nil)
	if !ok || got.Op != ledger.Alloc || got.Kind != ledger.Device || got.Size != 1<<32 || got.PID != 7 || got.API != "cuMemAlloc_v2" {
		t.Errorf("cuMemAlloc_v2: %+v, %v", got, ok)
	}
	if got, _ := Translate(event("cuMemAlloc"), nil); got.Size != 0 { // its size has 32 bits
		t.Errorf("cuMemAlloc: %+v", got)
	}
	if got, _ := Translate(event("cuMemAllocPitch_v2"), nil); got.Size != ledger.UnknownSize { // its size is in structures
		t.Errorf("cuMemAllocPitch_v2 without details: %+v", got)
	}
	captured := event("cuMemAllocAsync")
	captured.Flags = bpf.FlagCaptured
	if got, _ := Translate(captured, nil); got.Kind != ledger.Graph {
		t.Errorf("a captured cuMemAllocAsync: %+v", got)
	}
	unknown := event("cuMemAlloc_v2")
	unknown.Function = uint8(len(Table))
	if got, ok := Translate(unknown, nil); ok {
		t.Errorf("an event without a row: %+v", got)
	}
}
