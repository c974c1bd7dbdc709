// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"

	"github.com/vramprof/vramprof/bpf"
)

// TestMapsOfTensorsComeWhenTheyAreNeeded follows more tensors than the first map has space for.
func TestMapsOfTensorsComeWhenTheyAreNeeded(t *testing.T) {
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	const first = 8192
	m.firstBlocks = first
	m.trace(func(config *Config) { config.Sample = 0 })
	p := m.follow("2.6", nil, "live 5000 512", "totals", "wait", "live 20000 512", "totals", "wait")
	before := p.totals()
	if m.within("blocks", 0) == nil {
		t.Fatal("PyTorch was probed without a map of live tensors")
	}
	m.eventually("the second map is created", func() bool { return m.within("blocks", 1) != nil })
	p.next()
	after := p.totals()
	s := m.snapshot()
	checkLosses(t, s)
	for device, x := range tensorsOf(t, s, p.pid()) {
		if want := after[device]; x.LiveObjects != want.Live || x.Allocated != want.Allocated || want.Live <= before[device].Live {
			t.Errorf("device %d: the books have %+v, the allocator %+v, before %+v", device, x, want, before[device])
		}
	}
	numbers := m.allocators(p.pid())
	if n := m.inKernel(numbers); uint64(n) != after[0].Live || n <= first {
		t.Errorf("the kernel half has %d blocks, the allocator %d", n, after[0].Live)
	}
	p.end()
	m.ended(p)
	m.eventually("no block is left", func() bool { return m.inKernel(numbers) == 0 && m.shares.Used(bpf.TableBlocks) == 0 })
}
