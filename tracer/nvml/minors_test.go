// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestMinorsNameGPUsAndTheirInstances(t *testing.T) {
	gpus := []ledger.GPU{{UUID: "GPU-a"}, {UUID: "GPU-b", Index: 1}, {UUID: "MIG-b0", Parent: "GPU-b", Index: 1}, {UUID: "GPU-c", Index: 2}}
	partitions := map[string]partition{"GPU-a": {minor: 2}, "GPU-b": {minor: 0, divided: true}, "MIG-b0": {}, "GPU-c": {minor: -1}}
	for _, c := range []struct {
		minors []uint32
		want   []string
		all    bool
	}{
		{nil, nil, true},
		{[]uint32{2}, []string{"GPU-a"}, true},
		{[]uint32{0, 2}, []string{"GPU-a", "GPU-b", "MIG-b0"}, true},
		{[]uint32{1, 2}, []string{"GPU-a"}, false}, // GPU-c's, or an unlisted GPU's
	} {
		some, all := ofMinors(c.minors, gpus, partitions)
		var got []string
		for _, gpu := range some {
			got = append(got, gpu.UUID)
		}
		if !slices.Equal(got, c.want) || all != c.all {
			t.Errorf("minors %v: %q, %v; want %q, %v", c.minors, got, all, c.want, c.all)
		}
	}
}
