// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// withLRU returns the BTF of a kernel whose struct bpf_lru has these members.
func withLRU(t *testing.T, members ...string) *btf.Spec {
	t.Helper()
	lru := &btf.Struct{Name: "bpf_lru", Size: 4}
	for _, name := range members {
		lru.Members = append(lru.Members, btf.Member{Name: name, Type: &btf.Int{Name: "int", Size: 4}})
	}
	b, err := btf.NewBuilder([]btf.Type{lru}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestLRUMapsKeepHalfOfTheirEntriesOnAnyNumberOfCPUs(t *testing.T) {
	older, newer := withLRU(t, "common_lru"), withLRU(t, "common_lru", "target_free")
	for _, cpus := range []int{1, 2, 16, 64, 224, 1024, 8192} {
		for kernel, grows := range map[*btf.Spec]bool{older: true, newer: false} {
			probes, err := loadProbe()
			if err != nil {
				t.Fatal(err)
			}
			before := map[string]uint32{}
			for name, m := range probes.Maps {
				before[name] = m.MaxEntries
			}
			FitCPUs(probes, kernel, cpus)
			for name, m := range probes.Maps {
				switch left := int(m.MaxEntries) - freeTarget*cpus; {
				case m.Type != ebpf.LRUHash || !grows || cpus == 2:
					if m.MaxEntries != before[name] {
						t.Errorf("%d CPUs: %s has %d entries, before %d", cpus, name, m.MaxEntries, before[name])
					}
				case left < int(before[name])/2:
					t.Errorf("%d CPUs: %s has %d entries left of %d", cpus, name, left, before[name])
				}
			}
		}
	}
}
