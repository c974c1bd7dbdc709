// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
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
