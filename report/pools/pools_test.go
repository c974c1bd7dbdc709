// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

type stacks map[uint64][]callstack.Frame

func (s stacks) Stack(id uint64) []callstack.Frame { return s[id] }

// TestAPoolOfSeveralGraphsIsToldFromAMemPool: both have ids of the same kind, but the function that
// captured the first graph has allocated the pool's first segment.
func TestAPoolOfSeveralGraphsIsToldFromAMemPool(t *testing.T) {
	python := func(function, file string, line int) callstack.Frame {
		return callstack.Frame{Function: function, File: "/srv/" + file, Line: line, Python: true}
	}
	native := callstack.Frame{Function: "cudaMalloc"}
	main := func(line int) callstack.Frame { return python("main", "serve.py", line) }
	graph := []callstack.Frame{native, python("graph.__exit__", "torch/cuda/graphs.py", 9), python("capture", "serve.py", 26), main(40)}
	for name, c := range map[string]struct {
		memory []callstack.Frame
		want   string
	}{
		"a capture":             {[]callstack.Frame{native, native, python("forward", "model.py", 3), python("capture", "serve.py", 27), main(40)}, "graph pool 5"},
		"another function":      {[]callstack.Frame{native, python("load", "serve.py", 12), main(40)}, "MemPool 5"},
		"another call":          {[]callstack.Frame{native, python("capture", "serve.py", 27), main(39)}, "MemPool 5"},
		"a caller alone":        {[]callstack.Frame{native, main(40)}, "MemPool 5"},
		"a stack that is short": {[]callstack.Frame{main(40)}, "MemPool 5"},
		"no stack":              {nil, "MemPool 5"},
	} {
		id := caching.PoolID{0, 5}
		cache := &ledger.AllocatorCache{Cache: caching.Cache{Arenas: []caching.ArenaCache{{Arena: caching.Arena{Pool: id}, Reserved: 7}}},
			Origins:  []ledger.PoolOrigin{{Pool: id, Stack: 1, Time: 10}},
			Captures: []ledger.PoolCapture{{Pool: id, Stack: 3, Time: 9}, {Pool: id, Device: 1, Stack: 2, Time: 10}, {Pool: id, Stack: 2, Time: 11, Bytes: 7}}}
		p := Of(cache, stacks{1: c.memory, 2: graph, 3: {native, main(1)}})
		if got := p.Name(id); got != c.want || p.OfGraphs(id) != (got == "graph pool 5") || p.OfGraphs(id) != (len(p.Captures()) > 0) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if p := Of(cache, nil); p.OfGraphs(id) || p.Lines() != nil {
			t.Errorf("%s: without stacks %q, %+v", name, p.Name(id), p.Lines())
		}
	}
}
