// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/chunks"
)

const client = uint64(0xc1d00001) << 32

// internalBooks returns books to which each call of the function applies an event of process 5.
func internalBooks() (*Ledger, func(e Event)) {
	l, now := New(Options{Begin: 1}), uint64(1)
	return l, func(e Event) {
		now += 10
		e.PID, e.TID, e.Time = 5, 5, now
		l.Apply(&e)
	}
}

func takes(device int32, handle, size uint64, api string) Event {
	return Event{Op: Alloc, Kind: Internal, Space: Objects, Device: device, Address: client | handle, Size: size, Stack: 7, API: api}
}

func freeOf(address uint64) Event {
	return Event{Op: Free, Kind: Internal, Space: Objects, Address: address, Device: UnknownDevice}
}

// internalOf returns the live bytes of the driver's own.
func internalOf(l *Ledger) (bytes uint64) {
	s := l.Snapshot(1000, time.Unix(0, 0))
	for i := range s.Sites {
		if x := &s.Sites[i]; x.Kind == Internal {
			bytes += x.LiveBytes
		}
	}
	return bytes
}

func TestDriversOwnMemoryLivesUntilItsObjectOrClientEnds(t *testing.T) {
	l, apply := internalBooks()
	apply(takes(0, 1, 100<<10, "cuDevicePrimaryCtxRetain"))
	apply(takes(0, 2, 40<<10, "ioctl"))
	apply(takes(0, 3, 8<<10, "ioctl"))
	apply(freeOf(client | 2))
	apply(freeOf(client | 99)) // an object of another kind, or older than the attach
	if live := internalOf(l); live != 108<<10 {
		t.Errorf("%d bytes live, want 108 KiB", live)
	}
	if n := l.Snapshot(1000, time.Unix(0, 0)).Stats.UnmatchedFrees; n != 0 {
		t.Errorf("%d frees are unmatched: most objects are not memory", n)
	}
	apply(Event{Op: ContextReset, Device: 0})
	if live := internalOf(l); live != 108<<10 {
		t.Errorf("%d bytes live after the context ended, want 108 KiB until their frees", live)
	}
	apply(freeOf(client | client>>32))
	if live := internalOf(l); live != 0 {
		t.Errorf("%d bytes outlive their client", live)
	}
}

// A free that fails is undone, although the driver gave back memory of its own meanwhile.
func TestAFailedFreeIsUndoneWhateverTheDriverFreedInIt(t *testing.T) {
	l, apply := internalBooks()
	apply(takes(0, 1, 4<<10, "ioctl"))
	apply(Event{Op: Alloc, Kind: Device, Address: 0x1000, Size: 5 << 20, API: "cuMemAlloc_v2"})
	apply(Event{Op: Free, Address: 0x1000})
	apply(freeOf(client | 1))
	apply(Event{Op: FreeFailed, Address: 0x1000, Result: 1})
	s := l.Snapshot(1000, time.Unix(0, 0))
	if live := internalOf(l); live != 0 || len(s.Processes[0].Totals) == 0 || s.Sites[0].LiveBytes+s.Sites[len(s.Sites)-1].LiveBytes != 5<<20 {
		t.Errorf("%d bytes of the driver's own; sites %+v, want the 5 MiB of the failed free", live, s.Sites)
	}
}

// At a launch, the driver takes whole chunks for the allocations of graphs, which are booked
// already.
func TestMemoryOfGraphsIsNotBookedTwice(t *testing.T) {
	for _, c := range []struct {
		name  string
		graph bool // the process has an allocation of a graph
		event Event
		want  uint64
	}{
		{"chunk at a launch", true, takes(0, 1, chunks.Size, "cuGraphLaunch"), 0},
		{"two chunks at a launch", true, takes(0, 1, 2*chunks.Size, "cuGraphLaunch_ptsz"), 0},
		{"local memory at a launch", true, takes(0, 1, 6<<20, "cuGraphLaunch"), 6 << 20},
		{"chunk of a kernel", true, takes(0, 1, chunks.Size, "ioctl"), chunks.Size},
		{"chunk on another GPU", true, takes(1, 1, chunks.Size, "cuGraphLaunch"), chunks.Size},
		{"without graphs", false, takes(0, 1, chunks.Size, "cuGraphLaunch"), chunks.Size},
	} {
		l, apply := internalBooks()
		if c.graph {
			apply(Event{Op: Alloc, Kind: Graph, Device: 0, Address: chunks.Size, Size: 1 << 20, API: "cuGraphAddMemAllocNode"})
		}
		apply(c.event)
		if live := internalOf(l); live != c.want {
			t.Errorf("%s: %d bytes are the driver's own, want %d", c.name, live, c.want)
		}
	}
}

// While a context is made, NVML may count an object that the books do not have yet. It is of no
// baseline.
func TestContextThatIsSeenLeavesNothingBeforeTheAttach(t *testing.T) {
	l, apply := internalBooks()
	l.Tell(UsageReading{Time: 5})
	apply(takes(0, 1, 60<<20, "cuDevicePrimaryCtxRetain"))
	l.Tell(UsageOpened{})
	apply(takes(0, 2, 3<<20, "cuDevicePrimaryCtxRetain"))
	l.Tell(UsageReading{Time: 30, Usages: []Usage{{PID: 5, UUID: "GPU-a", Bytes: 63 << 20, Rough: true}}})
	apply(takes(0, 3, 37<<20, "cuDevicePrimaryCtxRetain"))
	x := l.Snapshot(1000, time.Unix(0, 0)).Parts()
	if len(x) != 1 || x[0].Internal != 100<<20 || x[0].Driver != 100<<20 || x[0].Foreign != 0 || x[0].Unexplained != 0 {
		t.Errorf("parts: %+v, want 100 MiB of the driver's own and nothing else", x)
	}
}

func TestSizesThatNoMemoryHasAreRefusedWithAWarning(t *testing.T) {
	for _, size := range []uint64{0, 4095, 1<<21 + 1, 1 << 63} {
		l, apply := internalBooks()
		apply(takes(0, 1, size, "ioctl"))
		s := l.Snapshot(1000, time.Unix(0, 0))
		if len(s.Sites) != 0 || len(s.Warnings) != 1 {
			t.Errorf("%d bytes: %d sites, warnings %q", size, len(s.Sites), s.Warnings)
		}
	}
}

func TestNoEventHasAKindOrASpaceOfTheBooks(t *testing.T) {
	l, apply := internalBooks()
	apply(Event{Op: Alloc, Kind: aliased, Address: 1, Size: 5})
	apply(Event{Op: Alloc, Kind: Device, Space: memories, Address: 1, Size: 5})
	if n := len(l.Snapshot(1000, time.Unix(0, 0)).Sites); n != 0 {
		t.Errorf("%d sites", n)
	}
}

// A checkpoint's books know the clients as before.
func TestClientsEndInBooksThatWereCarried(t *testing.T) {
	l, apply := internalBooks()
	apply(takes(0, 1, 64<<10, "ioctl"))
	apply(takes(0, 2, 4<<10, "ioctl"))
	apply(freeOf(client | 2))
	next := New(Options{Begin: 1})
	l.Opening(next)
	next.Apply(&Event{Op: Free, Kind: Internal, Space: Objects, PID: 5, TID: 5, Time: 500, Address: client | client>>32, Device: UnknownDevice})
	if live := internalOf(next); live != 0 {
		t.Errorf("%d bytes outlive their client", live)
	}
	if live := internalOf(l); live != 64<<10 || l.procs[0].clients[client>>32] != 1 {
		t.Errorf("%d bytes live, want 64 KiB of one object", live)
	}
}
