// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// roundingDriver takes memory as NVIDIA's driver does: see TestDriverTakesWholeLargePages and
// TestPoolsTakeChunksOf32MiB in internal/simdriver. All its figures follow from what lives.
type roundingDriver struct {
	live map[uint64]Event
	held map[uint64]bool // chunks of pools, also those that are kept unused
}

func (d *roundingDriver) free(size, align, from uint64) uint64 {
	addresses := []uint64{}
	for a := range d.live {
		addresses = append(addresses, a)
	}
	slices.Sort(addresses)
	at := from
	for _, a := range addresses {
		if end := a + d.live[a].Size; a < at+size && end > at {
			at = (end + align - 1) / align * align
		}
	}
	return at
}

func (d *roundingDriver) alloc(e Event) Event {
	switch {
	case e.Kind == Async:
		e.Address = d.free(e.Size, 512, 0x302000000)
		for n := e.Address >> 25; n <= (e.Address+e.Size-1)>>25; n++ {
			d.held[n] = true
		}
	case e.Size > 1<<20:
		e.Address = d.free((e.Size+2<<20-1)&^(2<<20-1), 2<<20, 0x7f0000000000)
	default:
		e.Address = 0x7e0000000000
		for e.Address = d.free(e.Size, 512, e.Address); e.Address>>21 != (e.Address+e.Size-1)>>21; {
			e.Address = d.free(e.Size, 512, (e.Address>>21+1)<<21)
		}
	}
	d.live[e.Address] = e
	return e
}

func (d *roundingDriver) used() (sum uint64) {
	pages := map[uint64]bool{}
	for a, e := range d.live {
		switch {
		case e.Kind == Async:
		case e.Size > 1<<20:
			sum += (e.Size + 2<<20 - 1) &^ (2<<20 - 1)
		default:
			pages[a>>21] = true
		}
	}
	return sum + uint64(len(pages))<<21 + uint64(len(d.held))<<25
}

// inUse returns how many chunks have live allocations.
func (d *roundingDriver) inUse() uint64 {
	all := d.held
	defer func() { d.held = all }()
	d.held = map[uint64]bool{}
	d.synchronize()
	return uint64(len(d.held))
}

// synchronize has the pool give back what it does not use.
func (d *roundingDriver) synchronize() {
	clear(d.held)
	for a, e := range d.live {
		for n := a >> 25; e.Kind == Async && n <= (a+e.Size-1)>>25; n++ {
			d.held[n] = true
		}
	}
}

// The rounding of a process that was traced from its begin is known to the byte, at each moment and
// in books that are made of others in between. While a pool keeps memory, NVML's figure decides.
func TestRoundingIsThatOfTheDriver(t *testing.T) {
	const context = 100 << 20
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 9))
		l := New(Options{Begin: 1e9})
		d := &roundingDriver{live: map[uint64]Event{}, held: map[uint64]bool{}}
		now := uint64(2e9)
		l.Tell(Process{PID: 7, Begin: now, Devices: []string{"GPU-a"}})
		apply := func(e Event) {
			now += 1e6
			e.PID, e.TID, e.Time, e.API = 7, 7, now, "cuMemAlloc_v2"
			l.Apply(&e)
		}
		kept := uint64(0) // at the latest reading, by the pool without using it
		read := func() {
			now += 1e6
			l.Tell(UsageReading{Time: now, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: context + d.used()}}})
			kept = uint64(len(d.held))<<25 - d.inUse()<<25
		}
		apply(d.alloc(Event{Op: Alloc, Kind: Device, Size: 1000}))
		read()
		var live []uint64
		for step := range 400 {
			switch n := rng.IntN(20); {
			case n < 9 && len(live) < 60:
				e := Event{Op: Alloc, Kind: Device, Size: 1 + rng.Uint64N(1<<(8+rng.IntN(18)))}
				if rng.IntN(3) == 0 {
					e.Kind = Async
				}
				e = d.alloc(e)
				live = append(live, e.Address)
				apply(e)
			case n < 17 && len(live) > 0:
				i := rng.IntN(len(live))
				async := d.live[live[i]].Kind == Async
				delete(d.live, live[i])
				apply(Event{Op: Free, Address: live[i]})
				live = slices.Delete(live, i, i+1)
				if rng.IntN(2) == 0 || !async {
					d.synchronize()
				}
				read() // what the pool kept or gave back shows
			case n == 17:
				read()
			case n == 18:
				again := New(Options{})
				l.Opening(again)
				l = again
			}
			s := l.Snapshot(now, time.Time{})
			x, sum := s.Parts()[0], uint64(0)
			if sum = x.Usage + uint64(x.Since); x.Unexplained != 0 || x.Foreign != context {
				t.Fatalf("seed %d, step %d: %+v, want nothing unexplained", seed, step, x)
			}
			held, most := uint64(len(d.held))<<25, uint64(0)
			if len(s.Pools) > 0 {
				if most = s.Pools[0].Held; most < held {
					t.Fatalf("seed %d, step %d: pool %+v holds %d", seed, step, s.Pools[0], held)
				}
			}
			// If a pool keeps some of what it does not use, it is unknown what it uses next.
			if want := context + d.used(); sum != want && (kept == 0 || kept == s.Balances[0].Idle) {
				t.Fatalf("seed %d, step %d: %+v with %d, want %d", seed, step, x, sum, want)
			}
		}
	}
}

// What is shown as one pool holds what its parts hold, and a destroyed pool holds the chunks of
// what still lives in it.
func TestShownAndDestroyedPoolsHoldTheirChunks(t *testing.T) {
	l := New(Options{Begin: 5e9})
	l.Tell(Process{PID: 7, Begin: 6e9, Devices: []string{"GPU-a"}})
	alloc := func(address, handle uint64, device int32) {
		l.Apply(&Event{Op: Alloc, Kind: Async, PID: 7, Time: 7e9, Address: address << 25, Size: 100, Handle: handle, Device: device})
	}
	alloc(1, 0, 0)
	alloc(2, 0, UnknownDevice)
	if got := l.Snapshot(8e9, time.Time{}).Pools; len(got) != 1 || got[0].Used != 200 || got[0].Least != 64<<20 || got[0].Held != 64<<20 {
		t.Errorf("got %+v, want one pool of two chunks", got)
	}
	alloc(3, 0xb, 0)
	l.Apply(&Event{Op: PoolDestroy, PID: 7, Time: 8e9, Handle: 0xb})
	l.Tell(UsageReading{Time: 9e9, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 200 << 20}}})
	if x := l.Snapshot(10e9, time.Time{}).Parts()[0]; x.Foreign != 104<<20 || x.Unexplained != 0 {
		t.Errorf("got %+v, want three chunks explained", x)
	}
}

// What NVML's figure has no room for is not rounding, whatever the rule.
func TestRoundingNeverExceedsWhatNVMLReports(t *testing.T) {
	l := New(Options{Begin: 5e9})
	l.Tell(Process{PID: 7, Begin: 1e9, Devices: []string{"GPU-a"}})
	read := func(at, bytes uint64) *Snapshot {
		l.Tell(UsageReading{Time: at, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: bytes}}})
		return l.Snapshot(at, time.Time{})
	}
	read(6e9, 100<<20)
	// In a page that has older allocations, so that the driver takes nothing for it.
	l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 7e9, Address: 0x200000, Size: 1000, API: "cuMemAlloc_v2"})
	if x := read(8e9, 100<<20).Parts()[0]; x.Rounding != 0 || x.Unexplained != 0 || x.Taken[TermForeign] != 1000 || x.Beyond() != 1000 || x.Driver+x.Foreign != 100<<20 {
		t.Errorf("got %+v, want no rounding", x)
	}
	l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 9e9, Address: 0x600000, Size: 3 << 20, API: "cuMemAlloc_v2"})
	if x := read(10e9, 104<<20).Parts()[0]; x.Rounding != 1<<20-1000 || x.Unexplained != 0 {
		t.Errorf("got %+v, want what is left", x)
	}
}

// An allocation whose GPU is learned later takes its rounding there, also at readings before.
func TestRoundingMovesWithItsAllocation(t *testing.T) {
	for name, sizes := range map[string][]uint64{"small": {1000, 2000, 5000}, "large": {3 << 20, 5 << 20}} {
		l := New(Options{Begin: 5e9})
		l.Tell(Process{PID: 7, Begin: 6e9, Devices: []string{"GPU-a", "GPU-b"}})
		held, apart := uint64(2<<20), uint64(1<<16)
		if name == "large" {
			held, apart = 4<<20+6<<20, 16<<20
		}
		for i, size := range sizes {
			l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 8, Time: 7e9 + uint64(i), Address: 1<<40 + uint64(i)*apart, Size: size, Device: UnknownDevice, Context: 0xc})
		}
		l.Tell(UsageReading{Time: 8e9, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 50 << 20}, {PID: 7, UUID: "GPU-b", Bytes: 70<<20 + held}}})
		l.Apply(&Event{Op: Learn, PID: 7, TID: 8, Time: 9e9, Device: 1, Context: 0xc})
		l.Tell(UsageReading{Time: 20e9, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 50 << 20}, {PID: 7, UUID: "GPU-b", Bytes: 70<<20 + held}}})
		for _, x := range l.Snapshot(21e9, time.Time{}).Parts() {
			want := Part{UUID: x.UUID, Device: x.Device, Foreign: 50 << 20, Usage: x.Usage}
			if x.UUID == "GPU-b" {
				want.Foreign = 70 << 20
				for _, size := range sizes {
					want.Driver += size
				}
				want.Rounding = held - want.Driver
			}
			if x != want {
				t.Errorf("%s: got %+v, want %+v", name, x, want)
			}
		}
	}
}

// A pool with a threshold keeps its chunks, and a trim takes those that are not in use.
func TestPoolsHoldWholeChunks(t *testing.T) {
	const mib = 1 << 20
	l := New(Options{Begin: 1e9})
	at := uint64(1e9)
	step := func(e Event, held uint64) {
		t.Helper()
		at += 1e9
		e.PID, e.Time = 7, at
		if e.Op == Alloc {
			e.Kind, e.API = Async, "cuMemAllocAsync"
		}
		l.Apply(&e)
		if p := l.Snapshot(at, time.Time{}).Pools; p[0].Held != held {
			t.Errorf("after %+v: %+v, want %d MiB", e, p[0], held/mib)
		}
	}
	step(Event{Op: Alloc, Address: 0x302000000, Size: 6 * mib}, 32*mib)
	step(Event{Op: Alloc, Address: 0x302600000, Size: 20 * mib}, 32*mib)
	step(Event{Op: Alloc, Address: 0x303a00000, Size: 100 * mib}, 128*mib)
	step(Event{Op: Free, Address: 0x303a00000}, 128*mib)
	step(Event{Op: PoolTrim, Size: 70 * mib}, 64*mib)
	step(Event{Op: PoolTrim}, 32*mib)
	step(Event{Op: Free, Address: 0x302000000}, 32*mib)
	step(Event{Op: Free, Address: 0x302600000}, 32*mib)
	l.Tell(Process{PID: 7, Devices: []string{"GPU-a"}})
	l.Tell(UsageReading{Time: at, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 132 * mib}}})
	if b := l.Snapshot(at, time.Time{}).Balances[0]; b.Idle != 32*mib {
		t.Errorf("%+v: want that 32 MiB may be held", b)
	}
	step(Event{Op: PoolThreshold, Size: 1 << 40}, 32*mib)
	if b := l.Snapshot(at, time.Time{}).Balances[0]; b.RoundingSince != 32*mib {
		t.Errorf("%+v: want that 32 MiB are held", b)
	}
}

func BenchmarkSmallAllocations(b *testing.B) {
	l := New(Options{})
	for i := range b.N {
		at := uint64(1<<40 + i%5000*1024)
		e := Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Time: uint64(i), Address: at, Size: 1000, API: "cudaMalloc"}
		l.Apply(&e)
		l.Apply(&Event{Op: Free, PID: 7, TID: 7, Time: uint64(i), Address: at})
	}
}
