// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestJSONOfAllocatorsAddsUp(t *testing.T) {
	list := NewLeaks(reporttest.Caches(), reporttest.StuckStacks(), report.Options{}).Allocators
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "allocators.json", append(text, '\n'))
	for _, r := range list {
		var kinds uint64
		for _, k := range r.Kinds {
			kinds += k.Bytes
		}
		if kinds != r.CacheBytes || r.AllocatedBytes+r.CacheBytes != r.ReservedBytes {
			t.Errorf("kinds of %d bytes: %+v", kinds, r)
		}
	}
}

func TestJSONNamesAPrivatePoolByItsLine(t *testing.T) {
	s := reporttest.Caches()
	s.Caches[0].Exact, s.Caches[0].Settled = false, true
	s.Caches[0].Origins = []ledger.PoolOrigin{{Pool: [2]uint64{1, 0}, Stack: 14, API: "cudaMalloc"}}
	r := NewLeaks(s, reporttest.StuckStacks(), report.Options{}).Allocators[0]
	for _, a := range r.Arenas {
		if want := map[bool]string{true: "/home/ada/llm/model.py:40 Block.forward"}[a.Pool == "CUDA graph 1"]; a.PoolLine != want {
			t.Errorf("pool %s: %q, want %q", a.Pool, a.PoolLine, want)
		}
	}
	if len(r.Captures) != 0 {
		t.Errorf("captures %+v", r.Captures)
	}
	s.Caches[0].Captures = []ledger.PoolCapture{{Pool: [2]uint64{1, 0}, Stack: 14, API: "cudaGraphInstantiate", Time: s.Begin + 7, Bytes: 5}, {Pool: [2]uint64{1, 0}, Device: 1, Stack: 14, Bytes: 6}}
	if got, want := NewLeaks(s, reporttest.StuckStacks(), report.Options{}).Allocators[0].Captures, (CaptureReport{"CUDA graph 1", "/home/ada/llm/model.py:40 Block.forward", 7, 5}); len(got) != 1 || got[0] != want {
		t.Errorf("captures %+v, want %+v", got, want)
	}
	if r.Exact || !r.Settled {
		t.Errorf("exact %v, settled %v", r.Exact, r.Settled)
	}
}
