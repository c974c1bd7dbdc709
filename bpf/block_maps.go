// SPDX-License-Identifier: Apache-2.0

package bpf

import "github.com/cilium/ebpf"

// BlockMaps are the maps of live blocks, which user space creates when they are needed: see
// block_table.h.
type BlockMaps struct {
	Near *ebpf.MapSpec
	Far  []*ebpf.MapSpec // in the order of their creation
}

// leastFar is how many blocks the first far map has space for, unless all have less: those that may
// come while user space creates the second.
const leastFar = 1 << 18

// TakeBlockMaps returns the maps of live blocks that spec describes. In spec it leaves templates:
// the kernel creates one of each while it creates the map of maps.
func TakeBlockMaps(spec *ebpf.CollectionSpec) BlockMaps {
	near, far := spec.Maps["near_blocks"], spec.Maps["blocks"]
	list := BlockMaps{Near: near.InnerMap.Copy()}
	list.Near.Name = near.Name
	left := far.InnerMap.MaxEntries
	add := func(entries uint32) {
		m := far.InnerMap.Copy()
		m.Name, m.MaxEntries = far.Name, entries
		list.Far = append(list.Far, m)
		left -= entries
	}
	add(min(left, max(left/8, leastFar)))
	if left > 0 {
		add(left)
	}
	far.InnerMap.MaxEntries = 1
	return list
}

// Entries returns how many entries a map has, or, of a map of maps, all maps in it.
func Entries(m *ebpf.MapSpec) uint32 { return withEntries(m).MaxEntries }

// Resize sets the number that Entries returns.
func Resize(m *ebpf.MapSpec, entries uint32) { withEntries(m).MaxEntries = entries }

func withEntries(m *ebpf.MapSpec) *ebpf.MapSpec {
	if m.Type == ebpf.ArrayOfMaps {
		return m.InnerMap
	}
	return m
}
