// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"reflect"
	"testing"
	"time"
)

// TestOnlyIsTheBooksWithoutTheOthers: what the snapshot has of a process is the same as in books
// that never saw another.
func TestOnlyIsTheBooksWithoutTheOthers(t *testing.T) {
	play := func(pids ...uint32) *Snapshot {
		l := New(Options{})
		for i, pid := range pids {
			l.Tell(Process{PID: pid, Begin: 1, Comm: "python3"})
			l.Tell(Devices{PID: pid, UUIDs: []string{"GPU-a"}})
			for k := range uint64(5) {
				l.Apply(&Event{Op: Alloc, Kind: Device, PID: pid, Time: 10 + k, Address: 0x1000 * (k + 1), Size: 512 * (k + 1 + uint64(i)), Stack: 1 + k, API: "cudaMalloc"})
			}
			l.Apply(&Event{Op: Alloc, Kind: Device, PID: pid, Time: 20, Result: 2, Size: 1 << 40, Stack: 9, API: "cudaMalloc"})
		}
		s := l.Snapshot(100, time.Unix(0, 0))
		l.AddStuck(s)
		l.AddPeaks(s)
		return s
	}
	got := play(7, 8, 9).Only(func(p *Process) bool { return p.PID == 7 })
	want := play(7)
	want.Stats = got.Stats // of the session
	if len(want.Sites) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("only process 7:\n%+v\nwant\n%+v", got, want)
	}
}

// TestOnlyKeepsEveryIndexInRange finds a list of a snapshot that Only forgets: each element with a
// process must be mapped.
func TestOnlyKeepsEveryIndexInRange(t *testing.T) {
	s := &Snapshot{Processes: []Process{{PID: 7}, {PID: 8}}}
	lists := 0
	for v, i := reflect.ValueOf(s).Elem(), 0; i < v.NumField(); i++ {
		f := v.Field(i)
		if f.Kind() != reflect.Slice || f.Type().Elem().Kind() != reflect.Struct {
			continue
		}
		if _, ok := f.Type().Elem().FieldByName("Process"); !ok {
			continue
		}
		lists++
		f.Set(reflect.MakeSlice(f.Type(), 2, 2))
		f.Index(1).FieldByName("Process").SetInt(1)
	}
	out := reflect.ValueOf(s.Only(func(p *Process) bool { return p.PID == 8 })).Elem()
	kept := 0
	for i := 0; i < out.NumField(); i++ {
		f := out.Field(i)
		if f.Kind() != reflect.Slice || f.Type().Elem().Kind() != reflect.Struct {
			continue
		}
		if _, ok := f.Type().Elem().FieldByName("Process"); ok && f.Len() == 1 && f.Index(0).FieldByName("Process").Int() == 0 {
			kept++
		}
	}
	if lists < 10 || kept != lists {
		t.Errorf("%d of %d lists have only what is the process's", kept, lists)
	}
}

func TestOnlyCountsOwnersElsewhere(t *testing.T) {
	s := &Snapshot{Processes: []Process{{PID: 7}, {PID: 8}}, Sites: []Site{{Process: 0, Owners: []Owner{{Process: 1}, {Process: 0}}}}}
	got := s.Only(func(p *Process) bool { return p.PID == 7 }).Sites[0]
	if len(got.Owners) != 1 || got.Owners[0].Process != 0 || !got.MoreOwners || len(s.Sites[0].Owners) != 2 {
		t.Errorf("owners %+v, more %v, of %+v", got.Owners, got.MoreOwners, s.Sites[0].Owners)
	}
}
