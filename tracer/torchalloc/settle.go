// SPDX-License-Identifier: Apache-2.0

package torchalloc

import (
	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Allocator names an allocator.
type Allocator struct {
	PID    uint32
	Device int32 // CUDA ordinal, or ledger.CPUDevice
}

// Known is what is known of an allocator after a time in which it did not report.
type Known struct {
	ledger.Stayed
	Totals bool // the following are known, by its own counters
	// Bytes in blocks and in segments, and the highest of the former in that time; 0 if it was
	// reached before.
	Allocated, Reserved, Peak uint64
}

// Smallest is the size of the smallest block that an allocator kept, of small and of large ones;
// ledger.Unknown for none.
type Smallest struct{ Small, Large uint64 }

// Live returns the bytes of the blocks of allocators on GPUs that the kernel half takes for live.
func (a *Allocators) Live() map[Allocator]uint64 {
	live := map[Allocator]uint64{}
	a.each(func(key bpf.TensorKey, value *bpf.TensorDevice, device int32) {
		if device >= 0 {
			live[Allocator{key.Pid, device}] = value.Live
		}
	})
	return live
}

// Settle has the kernel half forget all blocks of processes that may have been freed unseen, and
// take the totals that are known. at is the time of the totals. Of allocators that are not in known
// all blocks may have been freed; with some, these stay as they are. Settle returns what those that
// kept blocks kept. No probe in of may report meanwhile.
func (a *Allocators) Settle(of map[uint32]bool, at uint64, known map[Allocator]Known, some bool) (kept map[Allocator]Smallest) {
	list := map[uint32]*settling{}
	anyFar := false
	a.each(func(key bpf.TensorKey, value *bpf.TensorDevice, device int32) {
		name := Allocator{key.Pid, device}
		k, ok := known[name]
		if !of[key.Pid] || !ok && some {
			return
		}
		if !ok {
			k.Stayed = ledger.Stayed{Small: ledger.Unknown, Large: ledger.Unknown}
		}
		x := &settling{of: name, key: key, value: *value, known: k, kept: Smallest{ledger.Unknown, ledger.Unknown}}
		if x.all = k.Small == 0 && k.Large == 0; x.all {
			x.kept = Smallest{1, ledger.LargestSmall + 1} // or more
		}
		list[value.Number] = x
		anyFar = anyFar || value.Far > 0 && !x.all
	})
	for _, x := range list {
		if !x.all {
			a.settleNear(x)
		}
	}
	if anyFar {
		a.settleFar(list)
	}
	kept = map[Allocator]Smallest{}
	for _, x := range list {
		x.take(at)
		_ = a.mapOf(x.key).Update(&x.key, &x.value, ebpf.UpdateExist)
		if x.kept != (Smallest{ledger.Unknown, ledger.Unknown}) {
			kept[x.of] = x.kept
		}
	}
	return kept
}

// settling is an allocator whose blocks are looked through.
type settling struct {
	of    Allocator
	key   bpf.TensorKey
	value bpf.TensorDevice
	known Known
	all   bool // all blocks stay
	kept  Smallest
}

// stays reports whether a block stayed; otherwise it counts it as freed.
func (x *settling) stays(size uint64) bool {
	if !x.known.Has(size) {
		c := &x.value.Classes[ledger.SizeClass(size)]
		c.Frees, c.FreeBytes = c.Frees+1, c.FreeBytes+size
		x.value.Live -= min(size, x.value.Live)
		return false
	}
	if small := &x.kept.Small; size <= ledger.LargestSmall {
		*small = min(*small, size)
	} else {
		x.kept.Large = min(x.kept.Large, size)
	}
	return true
}

// take takes the totals.
func (x *settling) take(at uint64) {
	v, k := &x.value, &x.known
	if !k.Totals {
		return
	}
	v.Allocated, v.Reserved, v.Latest = k.Allocated, k.Reserved, max(at, v.Latest)
	if high := max(k.Allocated, k.Peak); high > v.Peak {
		v.Peak, v.PeakTime = high, v.Latest
	}
	v.Sent, v.SentAllocated, v.SentReserved, v.SentOlder = v.Latest, v.Allocated, v.Reserved, v.Allocated-min(v.Live, v.Allocated)
}

// settleNear looks through the table of an allocator's own.
func (a *Allocators) settleNear(x *settling) {
	a.mu.Lock()
	defer a.mu.Unlock()
	near, _ := a.maps.list()
	if near == nil || x.of.Device < 0 || x.value.Number >= near.MaxEntries() || near.Lookup(x.value.Number, &a.near) != nil {
		return
	}
	changed := false
	for i := range a.near.Block {
		b := &a.near.Block[i]
		if b.Address != 0 && b.Value != 0 && !x.stays(bpf.BlockSize(b.Value)) {
			b.Address, b.Value, changed = 0, 0, true
		}
	}
	if changed {
		_ = near.Put(x.value.Number, &a.near)
	}
}

// settleFar looks through the map of all blocks.
func (a *Allocators) settleFar(list map[uint32]*settling) {
	var gone []uint64
	a.eachFar(func(number uint32, key, value uint64) {
		if x := list[number]; x != nil && !x.all && !x.stays(bpf.BlockSize(value)) {
			x.value.Far -= min(1, x.value.Far)
			gone = append(gone, key)
		}
	})
	_, far := a.maps.list()
	for i := range gone {
		for _, m := range far {
			_ = m.Delete(&gone[i])
		}
	}
}
