// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// OfMinors returns the GPUs whose device nodes have these numbers, and their instances, as the last GPUs
// listed them. It is false where one is not among them.
func (d *Driver) OfMinors(minors []uint32, gpus []ledger.GPU) ([]ledger.GPU, bool) {
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
