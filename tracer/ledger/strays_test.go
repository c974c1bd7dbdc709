// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// onDevices lists the live bytes of a snapshot's only process by device, those of an unknown one as
// "?".
func onDevices(s *Snapshot) (list []string) {
	sums := map[int32]uint64{}
	for _, t := range s.Processes[0].Totals {
		sums[t.Device] += t.LiveBytes
	}
	for device, bytes := range sums {
		if bytes > 0 {
			list = append(list, fmt.Sprintf("%d:%d", device, bytes))
		}
	}
	slices.Sort(list)
	return list
}

func TestAllocationsMoveToTheDeviceThatIsLearned(t *testing.T) {
	const two = "devices GPU-a GPU-b\n"
	for name, c := range map[string]struct {
		script string
		want   []string
	}{
		"of the same thread": {`
			alloc t=1 addr=a size=10 tid=1
			alloc t=2 addr=b size=20 tid=2
			learn t=3 dev=1 tid=1`, []string{"-1:20", "1:10"}},
		"not those before it chose another one": {`
			alloc t=1 addr=a size=10 tid=1
			alloc t=3 addr=b size=20 tid=1
			learn t=4 dev=1 tid=1 addr=77359400`, []string{"-1:10", "1:20"}}, // 2 s
		"of the same context, in all threads": {`
			alloc t=1 addr=a size=10 tid=1 ctx=5
			alloc t=1 addr=b size=20 tid=2 ctx=5
			alloc t=1 addr=c size=40 tid=1 ctx=6
			learn t=3 dev=1 tid=3 ctx=5`, []string{"-1:40", "1:30"}},
		"not what was below a context that is pushed": {`
			alloc t=1 addr=a size=10 tid=1
			alloc t=2 addr=b size=20 tid=1 ctx=5
			learn t=3 dev=1 tid=1 ctx=5 size=1`, []string{"-1:10", "1:20"}},
		"when the context is retained": {`
			alloc t=1 addr=a size=10 ctx=5
			ctxretain t=2 ctx=5 dev=1`, []string{"1:10"}},
		"not what was freed": {`
			alloc t=1 addr=a size=10
			free t=2 addr=a
			alloc t=3 addr=a size=30 dev=0
			learn t=4 dev=1`, []string{"0:30"}},
		"out of pools": {`
			alloc t=1 addr=a size=10 kind=async
			learn t=2 dev=1
			free t=3 addr=a`, nil},
		"not of the host": {`
			alloc t=1 addr=a size=10 kind=pinned
			learn t=2 dev=1`, []string{"-1:10"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := play(t, two+c.script)
			s := l.Snapshot(9e9, time.Time{})
			checkBooks(t, s)
			checkLedger(t, l)
			if got := onDevices(s); !slices.Equal(got, c.want) {
				t.Errorf("bytes by device %v, want %v", got, c.want)
			}
		})
	}
}

func TestStraysAreBounded(t *testing.T) {
	l := New(Options{})
	alloc := func(i uint64) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Device: UnknownDevice, Time: i + 1, Address: i + 1, Size: 1, API: "a"})
	}
	for i := range uint64(10 * maxStrays) { // few live at a time
		alloc(i)
		if i >= 100 {
			l.Apply(&Event{Op: Free, PID: 7, TID: 7, Device: UnknownDevice, Time: i + 1, Address: i - 99})
		}
	}
	if p := l.procs[0]; len(p.strays) > maxStrays || p.crowded {
		t.Errorf("%d strays of 100 live allocations, crowded %v", len(p.strays), p.crowded)
	}
	for i := range uint64(2 * maxStrays) {
		alloc(1e6 + i)
	}
	if p := l.procs[0]; len(p.strays) > maxStrays || !p.crowded {
		t.Errorf("%d strays, crowded %v", len(p.strays), p.crowded)
	}
	l.Apply(&Event{Op: Learn, PID: 7, TID: 7, Device: 1, Time: 3e6})
	if p := l.procs[0]; len(p.strays) != 0 || p.crowded {
		t.Errorf("after all were told: %d strays, crowded %v", len(p.strays), p.crowded)
	}
}

func TestStraysOfManyProcessesAreBounded(t *testing.T) {
	l := New(Options{})
	for i := range uint32(2 * maxAllStrays) { // each process has its own few, and all live
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 1 + i/1000, TID: 7, Device: UnknownDevice, Time: uint64(i + 1), Address: uint64(i + 1), Size: 1, API: "a"})
	}
	if n := l.quotas[tableStrays].Used(); n != maxAllStrays || !l.procs[len(l.procs)-1].crowded {
		t.Errorf("%d strays, the last process %+v", n, l.procs[len(l.procs)-1].member.held)
	}
	for pid := range uint32(600) {
		l.Apply(&Event{Op: Exit, PID: 1 + pid, Time: 1e7})
	}
	l.Apply(&Event{Op: Alloc, Kind: Device, PID: 9999, TID: 7, Device: UnknownDevice, Time: 1e7 + 2*grace, Address: 1, Size: 1, API: "a"})
	if n := l.quotas[tableStrays].Used(); n != 1 {
		t.Errorf("after the processes ended: %d strays, want 1", n)
	}
}
