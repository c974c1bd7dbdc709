// SPDX-License-Identifier: Apache-2.0

package json

import (
	"bytes"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestJSONOfHeldMemory(t *testing.T) {
	s, st := reporttest.Held(), reporttest.HeldStacks()
	var b bytes.Buffer
	if err := WriteLeaks(&b, s, st, report.Options{Top: 2}); err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "held.json", b.Bytes())
	r := NewLeaks(s, st, report.Options{})
	var sum uint64
	for _, h := range r.Holders[0].Holders {
		sum += h.Bytes - h.DriverBytes
	}
	if want := s.LatestWalk(0).Allocators[0].Allocated; sum != want {
		t.Errorf("holders have %d bytes, the allocator %d", sum, want)
	}
	sum = 0
	for _, h := range r.Parts[0].OlderHolders {
		sum += h.Bytes
	}
	if sum != r.Parts[0].OlderTensorBytes {
		t.Errorf("holders of older memory have %d bytes of %d", sum, r.Parts[0].OlderTensorBytes)
	}
}
