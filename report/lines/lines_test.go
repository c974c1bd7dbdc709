// SPDX-License-Identifier: Apache-2.0

package lines_test

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// modules are stacks of one line of a model, below which PyTorch calls modules.
type modules map[uint64][]string

func (m modules) Stack(id uint64) []callstack.Frame {
	list := []callstack.Frame{{Function: "at::_ops::linear::call(at::Tensor const&)", Mapping: &callstack.Mapping{Path: "/opt/libtorch_cpu.so"}, Address: 1}}
	for _, name := range m[id] {
		list = append(list, callstack.Frame{Function: name, File: "/opt/site-packages/torch/nn/modules/module.py", Line: int(id), Python: true})
	}
	return append(list, callstack.Frame{Function: "Block.forward", File: "/home/u/gpt.py", Line: 25, Python: true})
}

const plumbing = "Module._call_impl"

func TestSitesOfOneLineAreOneRow(t *testing.T) {
	st := modules{
		1: {"Linear.forward", plumbing, "Module._wrapped_call_impl", "Sequential.forward", plumbing},
		2: {"GELU.forward", plumbing, "Sequential.forward", plumbing},
		3: {"GELU.forward", plumbing, "Sequential.forward", plumbing},
	}
	site := func(stack, bytes uint64, kind ledger.Kind) ledger.Site {
		return ledger.Site{Stack: stack, API: "torch", Kind: kind, LiveBytes: bytes, LiveObjects: 1, Growth: 5, Oldest: 10 * stack, History: []uint64{1, bytes}}
	}
	s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 7}, {PID: 8}}}
	s.Sites = []ledger.Site{site(2, 30, ledger.Tensor), site(1, 20, ledger.Tensor), site(3, 10, ledger.Tensor), site(1, 100, ledger.Device)}
	other := site(1, 200, ledger.Tensor)
	other.Process = 1
	s.Sites = append(s.Sites, other)

	rows := lines.New(s, st, nil).Rows(s.Sites)
	if len(rows) != 3 || rows[0].Process != 1 || rows[1].Kind != ledger.Device {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	r := &rows[2]
	if r.LiveBytes != 60 || r.LiveObjects != 3 || r.Growth != 15 || r.Oldest != 10 || !slices.Equal(r.History, []uint64{3, 60}) || r.API != "torch" || len(r.Sites) != 3 {
		t.Errorf("sum %+v", r.Site)
	}
	if r.Frame.Function != "Block.forward" || r.Frame.Line != 25 {
		t.Errorf("line %+v", r.Frame)
	}
	if want := []apart.Call{{Name: "GELU.forward", Bytes: 40}, {Name: "Linear.forward", Bytes: 20}}; !slices.Equal(r.Calls, want) {
		t.Errorf("calls %+v, want %+v", r.Calls, want)
	}
	if rows[0].Calls != nil {
		t.Errorf("one stack differs by %+v", rows[0].Calls)
	}
	for i := range s.Sites {
		if s.Sites[i].LiveBytes > 200 || len(s.Sites[i].History) != 2 || s.Sites[0].History[1] != 30 {
			t.Errorf("the snapshot was changed: %+v", s.Sites[i])
		}
	}
}

// Sites whose stacks are lost have no line in common.
func TestSitesWithoutALineStayApart(t *testing.T) {
	s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 7}}}
	for stack := range uint64(3) {
		s.Sites = append(s.Sites, ledger.Site{Stack: stack + 4, API: "cudaMalloc", Kind: ledger.Device, LiveBytes: 1})
	}
	if rows := lines.New(s, none{}, nil).Rows(s.Sites); len(rows) != 3 {
		t.Errorf("%d rows", len(rows))
	}
}

type none struct{}

func (none) Stack(uint64) []callstack.Frame { return nil }

// Rows carry the name of the module whose memory they are.
func TestARowHasTheNameOfTheModuleWhoseMemoryItIs(t *testing.T) {
	s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 7}}}
	held := ledger.Held{Holder: ledger.Holder{Path: "model.blocks.*.mlp.weight", Found: true}, Bytes: 80, Storages: 1}
	held.Parts[modelpart.Weight] = 80
	s.Walks = []ledger.Walked{{Process: 0, Held: []ledger.Held{held}}}
	s.Sites = []ledger.Site{{Stack: 1, Kind: ledger.Tensor, LiveBytes: 100, LiveObjects: 1, Holders: []ledger.SiteHolder{{Holder: 0, Bytes: 80}}}}
	if got, want := lines.New(s, modules{}, nil).Rows(s.Sites)[0].Module, "model.blocks.*.mlp"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
