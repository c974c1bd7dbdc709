// SPDX-License-Identifier: Apache-2.0

package cudaapi

import (
	"encoding/binary"
	"testing"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestImagesThatLieHaveNoSize(t *testing.T) {
	le := binary.LittleEndian
	elf := func(at uint64, each, number uint16) *bpf.Details {
		d := new(bpf.Details)
		le.PutUint32(d.Behind[:], elfMagic)
		le.PutUint64(d.Behind[40:], at)
		le.PutUint16(d.Behind[58:], each)
		le.PutUint16(d.Behind[60:], number)
		return d
	}
	fatbin := func(header uint16, size uint64) *bpf.Details {
		d := new(bpf.Details)
		le.PutUint32(d.Behind[:], fatbinMagic)
		le.PutUint16(d.Behind[6:], header)
		le.PutUint64(d.Behind[8:], size)
		return d
	}
	for _, c := range []struct {
		d    *bpf.Details
		want uint64
	}{
		{elf(1000, 64, 10), 1640},
		{elf(maxImage, 64, 10), ledger.UnknownSize},
		{elf(1<<64-100, 64, 10), ledger.UnknownSize},
		{fatbin(16, 1000), 1016},
		{fatbin(16, 1<<64-1), ledger.UnknownSize},
		{fatbin(16, 1<<63), ledger.UnknownSize},
		{new(bpf.Details), ledger.UnknownSize},
	} {
		if got := image(c.d, false); got != c.want {
			t.Errorf("% x: %d, want %d", c.d.Behind[:64], got, c.want)
		}
	}
}

func TestNodesThatCouldNotBeReadAreNotBooked(t *testing.T) {
	kernel := new(bpf.Details)
	free := new(bpf.Details)
	free.Behind[0], free.Behind[16] = nodeFrees, 5
	for _, c := range []struct {
		d    *bpf.Details
		want ledger.Op
	}{{nil, 0}, {kernel, 0}, {free, ledger.Free}} {
		e := ledger.Event{Op: ledger.Alloc, Kind: ledger.Graph, Address: 1}
		if addedNode(&e, c.d); e.Op != c.want || c.want == ledger.Free && e.Address != 5 {
			t.Errorf("%+v, want operation %d", e, c.want)
		}
	}
	e := ledger.Event{Op: ledger.PoolSelect}
	if poolOf(3)(&e, nil); e.Op != 0 {
		t.Errorf("a pool of unknown memory: %+v", e)
	}
}

// TestALocalityDomainIsOnItsDevice: CUDA 13.4 places memory in a part of a GPU. A location that is
// not known is on no device, never on the first.
func TestALocalityDomainIsOnItsDevice(t *testing.T) {
	located := func(at int, kind, id uint32) *bpf.Details {
		d := &bpf.Details{}
		binary.LittleEndian.PutUint32(d.Behind[at:], kind)
		binary.LittleEndian.PutUint32(d.Behind[at+4:], id)
		for i := range d.Argument {
			d.Argument[i] = 1 // CU_MEM_ALLOCATION_TYPE_PINNED
		}
		return d
	}
	for _, x := range []struct {
		name string
		at   int
		op   ledger.Op
	}{
		{"cuMemCreate", 8, ledger.Alloc}, {"cuGraphAddMemAllocNode", 8, ledger.Alloc}, {"cuMemPoolCreate", 8, ledger.PoolCreate},
		{"cuMemGetDefaultMemPool", 0, ledger.PoolCreate}, {"cuMemGetMemPool", 0, ledger.PoolCreate}, {"cuMemSetMemPool", 0, ledger.PoolCreate},
	} {
		e := event(x.name)
		if x.op != ledger.Alloc {
			e.Kind = bpf.KindCall
		}
		got, ok := Translate(e, located(x.at, 6, 1<<8|3))
		if !ok || got.Op != x.op || got.Device != 3 || got.Kind.OnHost() {
			t.Errorf("%s in domain 1 of device 3: %+v, %v", x.name, got, ok)
		}
		if got, _ = Translate(e, located(x.at, 1, 3)); got.Device != 3 {
			t.Errorf("%s on device 3: %+v", x.name, got)
		}
		if got, _ = Translate(e, located(x.at, 7, 0)); got.Device != ledger.UnknownDevice {
			t.Errorf("%s at an unknown location: %+v", x.name, got)
		}
	}
}
