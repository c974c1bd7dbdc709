// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// checkShares tests that processes hold as many places as are taken.
func checkShares(t *testing.T, l *Ledger, have map[table]int) {
	t.Helper()
	have[tableLive], have[tableFrees], have[tableExports], have[tableImporters] = liveIn(l), freesIn(l), len(l.exports), sum(l, func(p *process) int { return len(p.owners) })
	have[tablePools], have[tableFailures] = sum(l, func(p *process) int { return len(p.usedPools()) }), failuresIn(l)-sum(l, func(p *process) int { return p.bareFailures })
	for _, p := range l.procs {
		have[tableObjectSites] += len(p.objects.sites)
		for s := range p.all() {
			switch {
			case s.free:
			case s.bare:
				have[tableBare]++
			default:
				have[tableSites]++
			}
		}
	}
	var held [tables]int
	users := map[*[tables]int32][tables]int32{}
	for _, p := range l.procs {
		sum := users[p.user]
		for t, n := range p.held {
			held[t] += int(n)
			sum[t] += n
		}
		users[p.user] = sum
	}
	for x := range table(tableWarnings) {
		if want, known := have[x]; held[x] != l.quotas[x].Used() || known && want != held[x] {
			t.Errorf("%s: processes hold %d, %d are taken, %d are there", tableNames[x], held[x], l.quotas[x].Used(), want)
		}
	}
	for user, sum := range users {
		if *user != sum {
			t.Errorf("a user's processes hold %v, counted %v", sum, *user)
		}
	}
}

const (
	flooders    = 64 // processes of one user
	floodUser   = 1001
	floodPlaces = 1 << 13 // of the table that they fill
	honestPID   = 9000
)

// floods returns the events that fill a table, for the i-th place that a process takes.
var floods = map[table]func(pid uint32, i uint64) []Event{
	tableSites: func(pid uint32, i uint64) []Event {
		return []Event{{Op: Alloc, Kind: Device, Address: i + 1, Size: 1, Stack: i + 1}, {Op: Free, Address: i + 1}}
	},
	tableBare: func(pid uint32, i uint64) []Event {
		return []Event{{Op: Alloc, Kind: Device, Address: i + 1, Size: 1, Context: i + 1}, {Op: Free, Address: i + 1}}
	},
	tableLive: func(pid uint32, i uint64) []Event {
		return []Event{{Op: Alloc, Kind: Device, Address: i + 1, Size: 1, Stack: 1}}
	},
	tableMappings: func(pid uint32, i uint64) []Event {
		if i == 0 {
			return []Event{{Op: Alloc, Kind: VMM, Space: Physical, Address: 1, Size: 1}}
		}
		return []Event{{Op: Map, Address: i << 20, Size: 1, Handle: 1}}
	},
	tableFailures: func(pid uint32, i uint64) []Event {
		return []Event{{Op: AllocFailed, Kind: Device, Size: 1, Stack: i + 1, Result: 2}}
	},
	tablePools: func(pid uint32, i uint64) []Event { return []Event{{Op: PoolCreate, Handle: i + 1}} },
	tableStrays: func(pid uint32, i uint64) []Event {
		return []Event{{Op: Alloc, Kind: Device, Device: UnknownDevice, Address: i + 1, Size: 1, Stack: 1}}
	},
	tableExports: func(pid uint32, i uint64) []Event {
		if i == 0 {
			return []Event{{Op: Alloc, Kind: Device, Address: 1, Size: 1}}
		}
		return []Event{{Op: Export, Address: 1, Handle: uint64(pid)<<32 + i}}
	},
	tableImporters: func(pid uint32, i uint64) []Event {
		if i == 0 {
			return []Event{{Op: Alloc, Kind: Device, Address: 1, Size: 1}, {Op: Export, Address: 1, Handle: 5}}
		}
		return []Event{{Op: Alloc, Kind: Imported, Address: i + 1, Size: UnknownSize, Handle: 5, Stack: i}}
	},
	tableObjects: func(pid uint32, i uint64) []Event {
		return []Event{{Op: ObjectCreate, Kind: Module, Address: i + 1, Stack: 1}}
	},
	tableObjectSites: func(pid uint32, i uint64) []Event {
		return []Event{{Op: ObjectCreate, Kind: Module, Address: i + 1, Stack: i + 1}}
	},
}

// flood fills a table by many processes of a user, or by one.
func flood(l *Ledger, t table, processes uint32) {
	for pid := range processes {
		l.Tell(Process{PID: 1 + pid, User: floodUser, Begin: 1})
	}
	each := 2 * floodPlaces / uint64(processes)
	for i := range each {
		for pid := range processes {
			for _, e := range floods[t](1+pid, i) {
				e.PID, e.TID, e.Time = 1+pid, 1+pid, 10+i
				l.Apply(&e)
			}
		}
	}
}

// honest runs a job of another user that does a bit of everything, and returns its figures.
func honest(t *testing.T, l *Ledger, then uint64) {
	t.Helper()
	l.Tell(Process{PID: honestPID, User: floodUser + 1, Begin: 1})
	apply := func(e Event) {
		e.PID, e.TID, e.Time = honestPID, honestPID, then
		l.Apply(&e)
	}
	const sites, size = 50, 10 << 20
	for i := range uint64(sites) {
		apply(Event{Op: Alloc, Kind: Device, Address: 1<<40 + i, Size: size, Stack: 1<<50 + i})
	}
	apply(Event{Op: AllocFailed, Kind: Device, Size: 7, Stack: 1 << 51, Result: 2})
	apply(Event{Op: PoolCreate, Handle: 1 << 40})
	apply(Event{Op: ObjectCreate, Kind: Module, Address: 1 << 40, Stack: 1 << 52})
	apply(Event{Op: Alloc, Kind: VMM, Space: Physical, Address: 1 << 40, Size: size, Stack: 1 << 53})
	apply(Event{Op: Map, Address: 1 << 41, Size: size, Handle: 1 << 40})
	apply(Event{Op: Alloc, Kind: Device, Device: UnknownDevice, Address: 1 << 42, Size: size, Stack: 1 << 54})
	apply(Event{Op: Learn, Device: 1})
	apply(Event{Op: Export, Address: 1 << 40, Handle: 1 << 60})
	apply(Event{Op: Alloc, Kind: Imported, Address: 1 << 43, Size: UnknownSize, Handle: 1 << 60, Stack: 1 << 55})
	l.Tell(Warning{PID: honestPID, Text: "a warning about the honest job"})

	s := l.Snapshot(then+1, time.Time{})
	n := slices.IndexFunc(s.Processes, func(p Process) bool { return p.PID == honestPID })
	if n < 0 || len(s.Processes[n].Beyond) != 0 || s.Processes[n].Lost != 0 {
		t.Fatalf("the honest job is %d: %+v", n, s.Processes[max(n, 0)])
	}
	var bytes uint64
	stacks := map[uint64]bool{}
	for _, x := range s.Sites {
		if x.Process == n && x.Kind != Imported {
			bytes += x.LiveBytes
			stacks[x.Stack] = true
			if x.Stack == 0 || x.Evicted != 0 || x.Crowded != 0 || x.LiveBytes != size {
				t.Errorf("a site of the honest job: %+v", x)
			}
		}
	}
	if len(stacks) != sites+2 || bytes != (sites+2)*size {
		t.Errorf("the honest job has %d bytes from %d stacks, want %d from %d", bytes, len(stacks), (sites+2)*size, sites+2)
	}
	if !slices.ContainsFunc(s.Failures, func(f Failure) bool { return f.Process == n && f.Stack == 1<<51 && f.Crowded == 0 }) {
		t.Error("its failed allocation is not there with its stack")
	}
	if !slices.ContainsFunc(s.Pools, func(x Pool) bool { return x.Process == n }) {
		t.Error("its pool is not there")
	}
	if !slices.ContainsFunc(s.Objects, func(x Object) bool { return x.Process == n && x.Stack == 1<<52 && x.Live == 1 }) {
		t.Error("its driver object is not there with its stack")
	}
	if !slices.ContainsFunc(s.Sites, func(x Site) bool {
		return x.Process == n && x.Kind == Imported && x.LiveBytes == size && len(x.Owners) == 1
	}) {
		t.Error("what it imported has no size or no owner")
	}
	if !slices.Contains(s.Warnings, "a warning about the honest job") {
		t.Errorf("its warning is not among %d", len(s.Warnings))
	}
}

// TestAFloodIsMarkedAndLeavesOthersExact fills each table by one process, and by many of one user,
// beside a job of another user.
func TestAFloodIsMarkedAndLeavesOthersExact(t *testing.T) {
	for x := range floods {
		for _, processes := range []uint32{1, flooders} {
			t.Run(fmt.Sprintf("%s, processes: %d", tableNames[x], processes), func(t *testing.T) {
				l := New(Options{})
				l.quotas[x] = quota.New(floodPlaces)
				if x == tableBare {
					l.quotas[tableSites] = quota.New(floodPlaces)
				}
				flood(l, x, processes)
				honest(t, l, 1e6)
				checkShares(t, l, map[table]int{tableUnmapped: 0})
				if used := l.quotas[x].Used(); used > l.quotas[x].Size() {
					t.Errorf("%d places are taken of %d", used, l.quotas[x].Size())
				}
				marked := false
				for _, p := range l.Snapshot(1e6, time.Time{}).Processes {
					marked = marked || p.User == floodUser && slices.ContainsFunc(p.Beyond, func(b Beyond) bool { return b.Table == tableNames[x] && b.Count > 0 })
				}
				if !marked {
					t.Error("no process of the flood is marked")
				}
			})
		}
	}
}

func TestSitesWithoutRoomAreOneRowThatIsMarked(t *testing.T) {
	l := New(Options{MaxLive: 400})
	for i := range uint64(1000) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 1, Address: i + 1, Size: 10, Stack: 1 + i%2})
	}
	var evicted, live, allocated uint64
	for _, x := range l.Snapshot(1, time.Time{}).Sites {
		evicted, live, allocated = evicted+x.Evicted, live+x.LiveObjects, allocated+x.AllocObjects
	}
	if allocated != 1000 || live != 100 || evicted != 900 {
		t.Errorf("%d allocated, %d live, %d marked as missing; want 1000, 100 and 900", allocated, live, evicted)
	}
	l = New(Options{})
	l.Tell(Process{PID: 1})
	l.Tell(Limits{Sites: 1})
	for i := range uint64(2 * maxSites / quota.NewProcess) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 1, Address: i + 1, Size: 10, Stack: 1 + i})
	}
	var crowded uint64
	for _, x := range l.Snapshot(1, time.Time{}).Sites {
		if crowded += x.Crowded; (x.Crowded != 0) != (x.Stack == 0) {
			t.Errorf("site %+v", x)
		}
	}
	if crowded != maxSites/quota.NewProcess {
		t.Errorf("%d allocations are marked, want %d", crowded, maxSites/quota.NewProcess)
	}
}

func TestLostEventsMarkTheirProcess(t *testing.T) {
	l := New(Options{})
	for _, pid := range []uint32{1, 2} {
		l.Tell(Process{PID: pid, Begin: 1})
	}
	l.Tell(Stats{Lost: 5, LostBy: map[uint32]uint64{1: 5, 77: 3}, StacksBy: map[uint32]uint64{1: 2}})
	l.Tell(Stats{Lost: 9, LostBy: map[uint32]uint64{1: 9, 77: 3}, StacksBy: map[uint32]uint64{1: 2}})
	l.Apply(&Event{Op: Exec, PID: 1, Time: 10})
	l.Tell(Process{PID: 1, Begin: 11})
	l.Tell(Stats{Lost: 10, LostBy: map[uint32]uint64{1: 1}}) // counted anew
	s := l.Snapshot(20, time.Time{})
	var lost []uint64
	for _, p := range s.Processes {
		lost = append(lost, p.Lost)
	}
	if !slices.Equal(lost, []uint64{10, 1, 0}) || !slices.Equal(s.Processes[0].Beyond, []Beyond{{"stacks", 2}}) {
		t.Errorf("lost %v, beyond %+v", lost, s.Processes[0].Beyond)
	}
	if s.Stats.LostBy != nil || s.Stats.StacksBy != nil {
		t.Errorf("stats %+v", s.Stats)
	}
}

func TestOneUserDoesNotTakeThePlacesOfOthersProcesses(t *testing.T) {
	l := New(Options{maxProcesses: 64})
	for pid := range uint32(200) {
		l.Tell(Process{PID: 1 + pid, User: 1, Begin: 1})
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 1 + pid, Time: 2, Address: 1, Size: 1})
	}
	for pid := range uint32(3) {
		l.Tell(Process{PID: 1000 + pid, User: 2, Begin: 1})
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 1000 + pid, Time: 2, Address: 1, Size: 1})
	}
	s := l.Snapshot(3, time.Time{})
	others := 0
	for _, p := range s.Processes {
		if p.PID >= 1000 && len(p.Totals) == 1 {
			others++
		}
	}
	if others != 3 || len(s.Processes) > 64 || s.Stats.Lost == 0 {
		t.Errorf("%d of 3 processes of another user, %d of all, %d events lost", others, len(s.Processes), s.Stats.Lost)
	}
}

func TestOneProcessDoesNotTakeThePlacesOfOthersWarnings(t *testing.T) {
	l := New(Options{})
	for i := range maxWarnings {
		for pid := range uint32(8) {
			l.Tell(Process{PID: 1 + pid, User: floodUser})
			l.Tell(Warning{PID: 1 + pid, Text: fmt.Sprintf("process %d: %d", pid, i)})
		}
	}
	l.Tell(Process{PID: 10, User: 7})
	l.Tell(Warning{PID: 10, Text: "of the honest job"})
	l.Tell(Warning{Text: "of nobody"})
	s := l.Snapshot(1, time.Time{})
	if n := len(s.Warnings); n > maxWarnings+1 || !slices.Contains(s.Warnings, "of the honest job") || !slices.Contains(s.Warnings, "of nobody") || !slices.Contains(s.Warnings, moreWarnings) {
		t.Errorf("%d warnings, the last %q", n, s.Warnings[n-1])
	}
}

func TestSitesOfEndedProcessesAreBoundedForEachUser(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 300 MB")
	}
	l := New(Options{})
	l.quotas[tableEver] = quota.New(1 << 14)
	for pid := range uint32(200) {
		at := uint64(pid+1) * 10e9
		l.Tell(Process{PID: 1 + pid, User: floodUser, Begin: at})
		for i := range uint64(1000) {
			l.Apply(&Event{Op: Alloc, Kind: Device, PID: 1 + pid, Time: at, Address: 1 + i, Size: 8, Stack: 1 + i})
		}
		l.Apply(&Event{Op: Exit, PID: 1 + pid, Time: at + 1})
	}
	honest(t, l, 1e13)
	s := l.Snapshot(1e13, time.Time{})
	var crowded uint64
	for _, x := range s.Sites {
		crowded += x.Crowded
	}
	if len(s.Sites) > 1<<14 || crowded < 190_000-1<<14 {
		t.Errorf("%d sites, %d allocations marked", len(s.Sites), crowded)
	}
}

// TestFreesOfAFloodLeaveOthersToBeUndone: many threads free, so that the books remember none for
// long.
func TestFreesOfAFloodLeaveOthersToBeUndone(t *testing.T) {
	l := New(Options{})
	apply := func(op Op, pid, tid uint32) {
		l.Apply(&Event{Op: op, Kind: Device, PID: pid, TID: tid, Address: 1, Size: 8, Result: 1})
	}
	l.Tell(Process{PID: honestPID, User: 7})
	l.Tell(Process{PID: 1, User: floodUser})
	apply(Alloc, honestPID, 1e6)
	apply(Free, honestPID, 1e6)
	for i := range uint32(2 * maxLastFrees) {
		apply(Free, 1, i)
	}
	apply(FreeFailed, honestPID, 1e6)
	if x := l.Snapshot(1, time.Time{}).Sites; len(x) != 1 || x[0].LiveObjects != 1 {
		t.Errorf("sites %+v, want what the failed free left", x)
	}
	checkShares(t, l, map[table]int{tableUnmapped: 0})
}
