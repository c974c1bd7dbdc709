// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/vramprof/vramprof/bpf"
)

// TestForgetRemovesOneHashOfItsSet writes sets as the kernel half does.
func TestForgetRemovesOneHashOfItsSet(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	kernel, err := bpf.KernelTypes(btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	spec, err := bpf.LoadProbes(kernel)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(spec.Maps["stacks"])
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	sent, err := OpenSent(m)
	if err != nil {
		t.Fatal(err)
	}
	defer sent.Close()
	const set = uint32(12345)
	var full, others bpf.SentStacks
	for i := range full.Hash {
		full.Hash[i] = 0xabc<<47 | uint64(set)<<32 | uint64(i+1)
	}
	others = full
	others.Hash[3] = 0
	if err := m.Put(set, &full); err != nil {
		t.Fatal(err)
	}
	sent.Forget(full.Hash[3])
	sent.Forget(full.Hash[3] + 1<<32) // of the next set
	sent.Forget(1<<32 - 1)
	var got bpf.SentStacks
	if err := m.Lookup(set, &got); err != nil || got != others {
		t.Errorf("the set is %x, %v, want %x", got, err, others)
	}
	if n := sent.Len(); n != bpf.SentWays-1 {
		t.Errorf("%d stacks are left, want %d", n, bpf.SentWays-1)
	}
}
