// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// eventsAt applies events one second apart, from 1 s on, of process 7.
func eventsAt(l *Ledger, events ...Event) {
	for i := range events {
		e := events[i]
		e.PID, e.TID = 7, 7
		if e.Time == 0 {
			e.Time = uint64(i+1) * 1e9
		}
		l.Apply(&e)
	}
}

// describeObjects returns a line for each of Snapshot.Objects.
func describeObjects(l *Ledger) string {
	var b strings.Builder
	for _, o := range l.Snapshot(100e9, time.Time{}).Objects {
		fmt.Fprintf(&b, "%d %s on %d: %d of %d, %d named, %d before\n", o.Kind-DriverContext, o.API, o.Device, o.Live, o.Made, o.Bytes, o.Before)
	}
	return b.String()
}

func wantObjects(t *testing.T, l *Ledger, want string) {
	t.Helper()
	checkObjects(t, l)
	if got := describeObjects(l); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// checkObjects compares the sums of driver objects with the objects.
func checkObjects(t *testing.T, l *Ledger) {
	t.Helper()
	for n := range l.procs {
		x := l.procs[n].objects
		if l.procs[n].purged {
			continue
		}
		live, bytes := make([]uint64, len(x.sites)), make([]uint64, len(x.sites))
		for _, o := range x.live {
			live[o.site]++
			bytes[o.site] += o.bytes
		}
		for i, s := range x.sites {
			if s.live != live[i] || s.bytes != bytes[i] || s.live > s.made {
				t.Errorf("process %d, sum %d: %d live with %d bytes of %d, the objects are %d with %d", n, i, s.live, s.bytes, s.made, live[i], bytes[i])
			}
		}
	}
}

func TestDriverObjectsAreCountedLiveByStack(t *testing.T) {
	l := New(Options{})
	eventsAt(l,
		Event{Op: ObjectCreate, Kind: Module, Address: 0xa, Size: 1000, Stack: 1, API: "cuModuleLoadData"},
		Event{Op: ObjectCreate, Kind: Module, Address: 0xb, Size: UnknownSize, Stack: 1, API: "cuModuleLoadData"},
		Event{Op: ObjectCreate, Kind: Library, Address: 0xa, Size: 50, Stack: 2, API: "cuLibraryLoadData"},
		Event{Op: ObjectCreate, Kind: GraphExec, Address: 0xc, Stack: 3, API: "cuGraphInstantiateWithFlags"},
		Event{Op: ObjectEnd, Kind: Module, Address: 0xa},
		Event{Op: ObjectEnd, Kind: GraphExec, Address: 0xa},
	)
	wantObjects(t, l, "2 cuModuleLoadData on 0: 1 of 2, 0 named, 0 before\n3 cuLibraryLoadData on 0: 1 of 1, 50 named, 0 before\n4 cuGraphInstantiateWithFlags on 0: 1 of 1, 0 named, 0 before\n")
}

func TestDriverObjectsAreInNoSum(t *testing.T) {
	l := New(Options{})
	l.Tell(UsageReading{Time: 1, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 1 << 20}}})
	eventsAt(l, Event{Op: ObjectCreate, Kind: Module, Address: 0xa, Size: 1000, Stack: 1, API: "cuModuleLoadData"},
		Event{Op: Alloc, Kind: Module, Address: 0xb, Size: 1000, Stack: 1, API: "cuModuleLoadData"})
	s := l.Snapshot(9e9, time.Time{})
	if len(s.Sites) != 0 || len(s.Processes) != 1 || len(s.Processes[0].Totals) != 0 {
		t.Errorf("sites %+v, totals %+v, want none", s.Sites, s.Processes[0].Totals)
	}
}

func TestTheObjectsOfAContextEndWithIt(t *testing.T) {
	l := New(Options{})
	eventsAt(l,
		Event{Op: ContextRetain, Context: 0xc0, Device: 1, Stack: 9, API: "cudaFree"},
		Event{Op: ContextRetain, Context: 0xc0, Device: 1, Stack: 8, API: "cudaFree"},
		Event{Op: ObjectCreate, Kind: DriverContext, Address: 0xc1, Device: 1, Stack: 1, API: "cuCtxCreate_v2"},
		Event{Op: ObjectCreate, Kind: Module, Address: 0xa, Context: 0xc0, Device: 1, Stack: 1, API: "cuModuleLoadData"},
		Event{Op: ObjectCreate, Kind: Module, Address: 0xb, Context: 0xc1, Device: 1, Stack: 1, API: "cuModuleLoadData"},
		Event{Op: ObjectCreate, Kind: Library, Address: 0xb, Context: 0xc1, Device: 1, Stack: 1, API: "cuLibraryLoadData"},
	)
	const both = "0 cuCtxCreate_v2 on 1: 1 of 1, 0 named, 0 before\n0 cudaFree on 1: 1 of 1, 0 named, 0 before\n2 cuModuleLoadData on 1: 2 of 2, 0 named, 0 before\n3 cuLibraryLoadData on 1: 1 of 1, 0 named, 0 before\n"
	wantObjects(t, l, both)
	eventsAt(l, Event{Op: ContextDestroy, Context: 0xc1, Time: 20e9})
	wantObjects(t, l, "0 cudaFree on 1: 1 of 1, 0 named, 0 before\n0 cuCtxCreate_v2 on 1: 0 of 1, 0 named, 0 before\n2 cuModuleLoadData on 1: 1 of 2, 0 named, 0 before\n3 cuLibraryLoadData on 1: 1 of 1, 0 named, 0 before\n")
	eventsAt(l, Event{Op: ContextRelease, Device: 1, Time: 21e9}, Event{Op: ContextRelease, Device: 1, Time: 22e9})
	wantObjects(t, l, "0 cuCtxCreate_v2 on 1: 0 of 1, 0 named, 0 before\n0 cudaFree on 1: 0 of 1, 0 named, 0 before\n2 cuModuleLoadData on 1: 0 of 2, 0 named, 0 before\n3 cuLibraryLoadData on 1: 1 of 1, 0 named, 0 before\n")
}

func TestTheEndOfAnObjectIsNotThatOfItsHandlesNextBearer(t *testing.T) {
	l := New(Options{})
	eventsAt(l,
		Event{Op: ObjectCreate, Kind: Module, Address: 0xa, Stack: 1, API: "cuModuleLoad", Time: 1e9},
		Event{Op: ObjectCreate, Kind: Module, Address: 0xa, Stack: 2, API: "cuModuleLoad", Time: 5e9},
		Event{Op: ObjectEnd, Kind: Module, Address: 0xa, Time: 4e9},
	)
	wantObjects(t, l, "2 cuModuleLoad on 0: 1 of 1, 0 named, 0 before\n2 cuModuleLoad on 0: 0 of 1, 0 named, 0 before\n")
}

func TestObjectsThatCameAfterTheBaselineAreTold(t *testing.T) {
	l := New(Options{})
	module := Event{Op: ObjectCreate, Kind: Module, Stack: 1, API: "cuModuleLoad", Device: 0}
	module.Address, module.Time = 0xa, 1e9
	eventsAt(l, module)
	l.Tell(UsageReading{Time: 2e9, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 300 << 20}}})
	for i := range uint64(3) {
		module.Address, module.Time = 0xb+i, 3e9
		eventsAt(l, module)
	}
	l.Tell(UsageReading{Time: 4e9, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 400 << 20}}})
	wantObjects(t, l, "2 cuModuleLoad on 0: 4 of 4, 0 named, 1 before\n")
}

func TestMemoryOfAGreenContextIsThePrimaryContexts(t *testing.T) {
	l := New(Options{})
	eventsAt(l,
		Event{Op: GreenCreate, Kind: GreenContext, Address: 0x91, Device: 2, Stack: 1, API: "cuGreenCtxCreate"},
		Event{Op: ContextDerive, Context: 0xd1, Handle: 0x91, Device: UnknownDevice},
		Event{Op: Alloc, Kind: Device, Address: 0xa0, Size: 100, Context: 0xd1, Device: UnknownDevice, Stack: 1, API: "cuMemAlloc_v2"},
		Event{Op: GreenDestroy, Kind: GreenContext, Address: 0x91, Time: 10e9},
	)
	s := l.Snapshot(20e9, time.Time{})
	if len(s.Sites) != 1 || s.Sites[0].Device != 2 || s.Sites[0].LiveBytes != 0 || len(s.Releases) != 1 || s.Releases[0].Bytes != 100 {
		t.Errorf("sites %+v, releases %+v, want 100 bytes of device 2 that the context's last release freed", s.Sites, s.Releases)
	}
	wantObjects(t, l, "1 cuGreenCtxCreate on 2: 0 of 1, 0 named, 0 before\n")
}

func TestObjectsBeyondTheirLimitsAreSaid(t *testing.T) {
	l := New(Options{})
	for i := range uint64(maxAllObjects/quota.ProcessPart + 10) {
		eventsAt(l, Event{Op: ObjectCreate, Kind: Module, Address: i + 1, Stack: min(i, maxObjectSites+5), API: "cuModuleLoad", Time: 1e9})
	}
	checkObjects(t, l)
	s := l.Snapshot(2e9, time.Time{})
	var made, live uint64
	for _, o := range s.Objects {
		made += o.Made
		live += o.Live
	}
	if made != maxAllObjects/quota.ProcessPart+10 || live != maxAllObjects/quota.ProcessPart || len(s.Objects) != maxObjectSites+1 || len(s.Warnings) != 2 {
		t.Errorf("%d of %d live in %d sums, warnings %q", live, made, len(s.Objects), s.Warnings)
	}
}

func TestStacksOfObjectsAreBoundedOverAllProcesses(t *testing.T) {
	l := New(Options{})
	e := Event{Op: ObjectCreate, Kind: Module, API: "cuModuleLoad", Time: 1e9}
	for pid := range uint32(maxAllObjectSites/maxObjectSites + 2) {
		for i := range uint64(maxObjectSites) {
			e.PID, e.Address, e.Stack = pid, i+1, i+1
			l.Apply(&e)
		}
	}
	if n := len(l.Snapshot(2e9, time.Time{}).Objects); n > maxAllObjectSites+3 || n < maxAllObjectSites-maxAllObjectSites/quota.ReservePart {
		t.Errorf("%d sums of objects, want at most one more for each process beyond %d, and all but the reserve", n, maxAllObjectSites)
	}
}

func TestAPoolThatIsNotOfOneGPUIsNotBookedOnOne(t *testing.T) {
	for kind, host := range map[Kind]bool{Pinned: true, Managed: false} {
		l := New(Options{})
		eventsAt(l,
			Event{Op: PoolCreate, Kind: kind, Handle: 0x91, Device: UnknownDevice},
			Event{Op: Alloc, Kind: Async, Address: 0xa0, Size: 100, Handle: 0x91, Device: 0, Stack: 1, API: "cuMemAllocFromPoolAsync"},
			Event{Op: PoolCreate, Kind: kind, Handle: 0x91, Device: UnknownDevice},
			Event{Op: Alloc, Kind: Async, Address: 0xb0, Size: 10, Handle: 0x91, Device: 0, Stack: 1, API: "cuMemAllocFromPoolAsync"},
			Event{Op: AllocFailed, Kind: Async, Size: 1, Handle: 0x91, Device: 0, Stack: 1, Result: 2, API: "cuMemAllocFromPoolAsync"},
			Event{Op: Free, Address: 0xa0},
		)
		s := l.Snapshot(20e9, time.Time{})
		if len(s.Sites) != 1 || s.Sites[0].Kind != kind || s.Sites[0].Kind.OnHost() != host || s.Sites[0].LiveBytes != 10 || len(s.Pools) != 0 ||
			len(s.Failures) != 1 || s.Failures[0].Kind != kind {
			t.Errorf("%d: sites %+v, pools %+v, failures %+v", kind, s.Sites, s.Pools, s.Failures)
		}
	}
}

func TestTheCurrentPoolOfANewProcessIsTheDevicesOwn(t *testing.T) {
	for begin, own := range map[uint64]bool{0: true, 50e9: false} {
		l := New(Options{Begin: begin})
		eventsAt(l,
			Event{Op: PoolCurrent, Handle: 0x91, Device: 0},
			Event{Op: Alloc, Kind: Async, Address: 0xa0, Size: 100, Handle: 0x91, Device: 0, Stack: 1, API: "cuMemAllocFromPoolAsync"},
			Event{Op: Alloc, Kind: Async, Address: 0xb0, Size: 10, Device: 0, Stack: 1, API: "cuMemAllocAsync"},
		)
		s := l.Snapshot(60e9, time.Time{})
		if len(s.Pools) != 1 || s.Pools[0].Used != 110 || (s.Pools[0].Handle == 0) != own {
			t.Errorf("begin %d: pools %+v, want one with both, the device's own: %v", begin, s.Pools, own)
		}
	}
}

func TestImportedMemoryNamesItsOwners(t *testing.T) {
	l := New(Options{})
	apply := func(e Event) { e.TID = e.PID; l.Apply(&e) }
	for i := range uint64(maxOwners + 2) {
		pid := uint32(10 + i)
		apply(Event{Op: Alloc, Kind: Device, PID: pid, Time: 1e9, Address: 0xa0, Size: 100, Stack: 30 + i, API: "cudaMalloc"})
		apply(Event{Op: Export, PID: pid, Time: 2e9, Address: 0xa0, Handle: 0x500 + i})
	}
	open := func(pid uint32, address, handle, stack uint64) {
		apply(Event{Op: Alloc, Kind: Imported, PID: pid, Time: 3e9, Address: address, Size: UnknownSize, Handle: handle, Stack: stack, API: "cudaIpcOpenMemHandle"})
	}
	open(7, 0x1, 0x500, 1)
	open(7, 0x2, 0x500, 1)
	open(7, 0x3, 0x999, 1) // of no traced process
	for i := range uint64(maxOwners + 2) {
		open(7, 0x10+i, 0x500+i, 2)
	}
	s := l.Snapshot(9e9, time.Time{})
	for _, x := range s.Sites {
		switch {
		case x.Kind != Imported:
			if len(x.Owners) != 0 {
				t.Errorf("%+v has owners", x)
			}
		case x.Stack == 1:
			if len(x.Owners) != 1 || x.MoreOwners || s.Processes[x.Owners[0].Process].PID != 10 || x.Owners[0].Stack != 30 || x.Owners[0].API != "cudaMalloc" {
				t.Errorf("owners %+v, %v, want the site with stack 30 of process 10", x.Owners, x.MoreOwners)
			}
		case len(x.Owners) != maxOwners || !x.MoreOwners:
			t.Errorf("%d owners, more %v, want %d and more", len(x.Owners), x.MoreOwners, maxOwners)
		}
	}
}
