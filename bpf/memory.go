// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"math/bits"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// freeTarget is how many free entries of an LRU map a CPU takes at a time: LOCAL_FREE_TARGET of
// kernel/bpf/bpf_lru_list.c.
const freeTarget = 128

// adjustsFreeTarget reports whether the kernel reserves at most half of an LRU map's entries for
// its CPUs: commit d4adf1c9ee77 of Linux 6.16, which is also in the stable series.
func adjustsFreeTarget(kernel *btf.Spec) bool {
	var lru *btf.Struct
	return kernel.TypeByName("bpf_lru", &lru) == nil &&
		slices.ContainsFunc(lru.Members, func(m btf.Member) bool { return m.Name == "target_free" })
}

// lruEntries returns how many entries an LRU map needs without that commit, so that half of the
// wanted entries remain after each possible CPU has taken its free ones. With 64 CPUs and 8,192
// entries none would remain: each CPU evicts what the others insert.
func lruEntries(entries uint32, cpus int) uint32 {
	return max(entries, entries/2+freeTarget*uint32(cpus))
}

// FitCPUs sets the number of entries of the LRU maps in spec for a machine with cpus possible CPUs.
func FitCPUs(spec *ebpf.CollectionSpec, kernel *btf.Spec, cpus int) {
	if adjustsFreeTarget(kernel) {
		return
	}
	for _, m := range spec.Maps {
		if m.Type == ebpf.LRUHash {
			m.MaxEntries = lruEntries(m.MaxEntries, cpus)
		}
	}
}

// Memory is the kernel memory of a map, in bytes.
type Memory struct {
	Reserved uint64 // at creation; the kernel reports it in /proc/PID/fdinfo (Linux 6.4 and newer)
	Caches   uint64 // at creation, for free entries of each possible CPU; not reported
	Growth   uint64 // additional memory of a full map
}

// Add adds the memory of other maps.
func (m *Memory) Add(x Memory) {
	m.Reserved += x.Reserved
	m.Caches += x.Caches
	m.Growth += x.Growth
}

// MemoryOf computes the memory of a map on a machine with cpus possible CPUs, as the kernel's
// functions named …_map_mem_usage do.
func MemoryOf(m *ebpf.MapSpec, cpus int) Memory {
	const (
		page, header, bucket, pointer = 4096, 320, 16, 8
		hashElement, trieNode         = 48, 40 // before the key
		freeListNode                  = 8
		lruLists                      = 128 // of a CPU
	)
	n, c := uint64(m.MaxEntries), uint64(cpus)
	key, value := roundUp(uint64(m.KeySize), 8), roundUp(uint64(m.ValueSize), 8)
	switch m.Type {
	case ebpf.Array:
		// Variables are mmapable too.
		if m.Flags&unix.BPF_F_MMAPABLE != 0 || strings.HasPrefix(m.Name, ".") {
			return Memory{Reserved: page + roundUp(n*value, page)}
		}
		return Memory{Reserved: header + n*value}
	case ebpf.PerCPUArray:
		return Memory{Reserved: header + n*pointer + n*value*c}
	case ebpf.ProgramArray, ebpf.ArrayOfMaps:
		return Memory{Reserved: header + n*pointer}
	case ebpf.PerfEventArray: // an entry for each CPU
		return Memory{Reserved: header + c*pointer}
	case ebpf.RingBuf: // a page for its header, and one for each position
		return Memory{Reserved: header + n + 3*page}
	case ebpf.Stack, ebpf.Queue:
		return Memory{Reserved: header + (n+1)*uint64(m.ValueSize)}
	case ebpf.LPMTrie: // up to one intermediate node per entry
		return Memory{Reserved: header, Growth: 2 * n * slab(trieNode+uint64(m.KeySize)-4+uint64(m.ValueSize))}
	case ebpf.LRUHash, ebpf.LRUCPUHash, ebpf.Hash, ebpf.HashOfMaps:
		r := Memory{Reserved: 2*header + bucket*nextPower(n)}
		switch {
		case m.Type == ebpf.LRUCPUHash:
			r.Reserved += n * (hashElement + key + pointer + value*c)
			r.Caches = lruLists * c
		case m.Type == ebpf.LRUHash:
			r.Reserved += n * (hashElement + key + value)
			r.Caches = lruLists * c
		case m.Flags&unix.BPF_F_NO_PREALLOC == 0:
			r.Reserved += (n+c)*(hashElement+key+value) + c*pointer
		default:
			element := slab(hashElement + key + value + freeListNode)
			r.Growth = n * element
			r.Caches = c * element
			if element <= 256 {
				r.Caches *= 4
			}
		}
		return r
	}
	return Memory{Reserved: header + n*(key+value)}
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

func nextPower(n uint64) uint64 { return 1 << bits.Len64(max(n, 1)-1) }

// slab returns how many bytes the kernel's allocator uses for an object of n bytes.
func slab(n uint64) uint64 {
	for _, size := range [...]uint64{96, 192} {
		if n <= size && n > size*2/3 {
			return size
		}
	}
	return max(nextPower(n), 8)
}
