// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// FuzzOrdinals resolves a hostile list of GPUs: the result has only existing GPUs, none twice.
func FuzzOrdinals(f *testing.F) {
	for _, list := range []string{"", "0", "1,0", "GPU-aa", "MIG-GPU-aa00/1/0", "-1", "0,0", "0x1", " 1 , 0 ", "NoDevFiles", "99999999999999999999", ",,,", "MIG-GPU-/9/9"} {
		f.Add(list, "PCI_BUS_ID", true)
		f.Add(list, "FASTEST_FIRST", false)
	}
	f.Fuzz(func(t *testing.T, list, order string, divided bool) {
		gpus := []ledger.GPU{{Index: 0, UUID: "GPU-aa00", Name: "A"}, {Index: 1, UUID: "GPU-aa11", Name: "A"}, {Index: 2, UUID: "GPU-bb22", Name: "B"}}
		partitions := map[string]partition{}
		if divided {
			gpus = append(gpus, ledger.GPU{UUID: "MIG-1", Parent: "GPU-aa00", Name: "A MIG"})
			partitions["GPU-aa00"], partitions["MIG-1"] = partition{divided: true}, partition{instance: instance{1, 0}}
		}
		known := map[string]bool{"": true}
		for _, gpu := range gpus {
			known[gpu.UUID] = true
		}
		got := ordinals([]string{"CUDA_VISIBLE_DEVICES=" + list, "CUDA_DEVICE_ORDER=" + order}, gpus, partitions, nil)
		if len(got) > maxVisible {
			t.Errorf("%d GPUs", len(got))
		}
		for i, uuid := range got {
			if !known[uuid] || uuid != "" && slices.Contains(got[:i], uuid) {
				t.Errorf("%q became %q", list, got)
			}
		}
	})
}
