// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// GPUsByMinor returns the GPUs with these device node numbers, and their instances, as of the last
// call of GPUs. It returns false if a number belongs to no listed GPU.
func (d *Driver) GPUsByMinor(minors []uint32, gpus []ledger.GPU) ([]ledger.GPU, bool) {
	var partitions map[string]partition
	if p := d.partitions.Load(); p != nil {
		partitions = *p
	}
	return ofMinors(minors, gpus, partitions)
}

func ofMinors(minors []uint32, gpus []ledger.GPU, partitions map[string]partition) (some []ledger.GPU, all bool) {
	found := map[uint32]bool{}
	for _, gpu := range gpus {
		uuid := gpu.UUID
		if gpu.Parent != "" {
			uuid = gpu.Parent
		}
		p, known := partitions[uuid]
		if known && p.minor >= 0 && slices.Contains(minors, uint32(p.minor)) {
			found[uint32(p.minor)] = true
			some = append(some, gpu)
		}
	}
	for _, minor := range minors {
		if !found[minor] {
			return some, false
		}
	}
	return some, true
}
