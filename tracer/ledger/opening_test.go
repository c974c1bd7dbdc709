// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// opened returns the books that are made from an opening of l.
func opened(l *Ledger) *Ledger {
	n := New(Options{})
	l.Opening(n)
	return n
}

// booksOf returns all that books show at a time, without the processes that an opening leaves out.
func booksOf(l *Ledger, now uint64) *Snapshot {
	s := l.Snapshot(now, time.Unix(1, 0))
	l.AddPeaks(s)
	l.AddStuck(s)
	slices.Sort(s.Warnings) // of one input for several processes
	return s
}

// differs returns where two snapshots differ, "" if they do not. Only Opened may.
func differs(a, b *Snapshot) string {
	x, y := *a, *b
	x.Opened, y.Opened = 0, 0
	x.Host, y.Host = "", ""
	var list []string
	compare("", reflect.ValueOf(x), reflect.ValueOf(y), &list)
	return strings.Join(list[:min(len(list), 12)], "\n")
}

func compare(path string, a, b reflect.Value, list *[]string) {
	switch a.Kind() {
	case reflect.Struct:
		if a.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range a.NumField() {
			compare(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i), list)
		}
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				*list = append(*list, fmt.Sprintf("%s: %v and %v", path, a, b))
			}
			return
		}
		compare(path, a.Elem(), b.Elem(), list)
	case reflect.Slice:
		if a.Len() != b.Len() {
			*list = append(*list, fmt.Sprintf("%s: %d and %d: %+v and %+v", path, a.Len(), b.Len(), a, b))
			return
		}
		for i := range a.Len() {
			compare(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i), list)
		}
	case reflect.Map:
		if fmt.Sprint(a) != fmt.Sprint(b) {
			*list = append(*list, fmt.Sprintf("%s: %v and %v", path, a, b))
		}
	default:
		if !a.Equal(b) {
			*list = append(*list, fmt.Sprintf("%s: %v and %v", path, a, b))
		}
	}
}

// TestBooksFromAnOpeningStayTheSame: at random moments, the further events go into books made from
// an opening too.
func TestBooksFromAnOpeningStayTheSame(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		l := New(Options{Begin: 100})
		var others []*Ledger
		var witnesses []*witness
		for i := range 400 {
			if i%100 == 50 {
				o, w := New(Options{}), newWitness(t)
				o.Observe(w)
				l.Opening(o)
				others, witnesses = append(others, o), append(witnesses, w)
			}
			e := randomEvent(rng)
			e.Time = uint64(101 + i)
			l.Apply(&e)
			for k, o := range others {
				o.Apply(&e)
				if i%10 == 0 || i == 399 {
					if d := differs(booksOf(l, e.Time), booksOf(o, e.Time)); d != "" {
						t.Fatalf("seed %d, event %d, opening %d: after %+v:\n%s", seed, i, k, e, d)
					}
				}
			}
		}
		for k, o := range others {
			checkLedger(t, o)
			witnesses[k].compare(o)
		}
	}
}

// TestBooksFromAnOpeningOfHostileSequencesStayTheSame with readings, lists of blocks, marks of
// segments and processes that have ended. Those that have lost their entries are as if forgotten.
func TestBooksFromAnOpeningOfHostileSequencesStayTheSame(t *testing.T) {
	rng, compared := rand.New(rand.NewPCG(5, 9)), 0
	for k, data := range randomSequences()[:150] {
		l, o, at := New(Options{Begin: 100e9, MaxLive: 64}), (*Ledger)(nil), rng.IntN(min(len(data)/16, 200))
		var last uint64
		for i := 0; len(data) >= 16; i, data = i+1, data[16:] {
			if i == at {
				l.purge(l.newest) // as Forget does
				o = opened(l)
				checkLedger(t, o)
				if before := o.gone.Before; before != 0 {
					l.Tell(Forget{before})
				}
			}
			e := stepHostile(l, data)
			last = max(last, e.Time)
			if o == nil {
				continue
			}
			stepHostile(o, data)
			if i%300 == 0 || i == at || i == at+20 {
				a, b := booksOf(l, last), booksOf(o, last)
				compared++
				if d := differs(a, b); d != "" {
					t.Fatalf("sequence %d, event %d, opened at %d:\n%s", k, i, at, d)
				}
			}
		}
	}
	if compared < 300 {
		t.Errorf("only %d snapshots were compared", compared)
	}
}

// TestAbsurdFiguresOfOneProcessSpoilNoOpening: it can invent tensors of any size on any device.
func TestAbsurdFiguresOfOneProcessSpoilNoOpening(t *testing.T) {
	l := New(Options{Begin: 1})
	for device := range int32(64) {
		e := Event{Op: Alloc, Kind: Tensor, Space: Blocks, PID: 8, Time: 5, Device: device, Address: 512, Size: maxSize, Halvings: 12, API: "torch"}
		for range 4 {
			e.Op = Alloc
			l.Apply(&e)
			e.Op = Free
			l.Apply(&e)
		}
		l.Tell(TensorReading{Time: 6, Totals: []TensorTotals{{PID: 8, Device: device, OlderBytes: 1 << 63, Allocated: 1 << 63, Peak: 1 << 63, PeakTime: 6, Live: 1 << 63}}})
	}
	l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 7, Address: 1, Size: 100, API: "cudaMalloc"})
	s := opened(l).Snapshot(10, time.Time{})
	if len(s.Warnings) > 0 || len(s.Processes) != 2 || len(s.Processes[0].Totals) != 1 || s.Processes[0].Totals[0].LiveBytes != 100 {
		t.Errorf("warnings %q, processes %+v", s.Warnings, s.Processes)
	}
}

// TestWarningsOfNoProcessAreForgottenWithNone: a forged opening names a process that does not
// exist.
func TestWarningsOfNoProcessAreForgottenWithNone(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 7, Address: 1, Size: 100, API: "cudaMalloc"})
	l.Tell(Warning{7, "process 7 is odd"})
	var list pieces
	l.Opening(&list)
	n := New(Options{})
	for _, in := range list {
		x, ok := in.(Carried)
		if ok && carriedKind(x.Data[0]>>1) == carriedProcess {
			continue // the warnings before it are of its process
		}
		n.Tell(in)
	}
	n.Apply(&Event{Op: Exit, PID: 8, Time: 8})
	n.Apply(&Event{Op: Alloc, Kind: Device, PID: 8, Time: 9, Address: 1, Size: 100, API: "cudaMalloc"})
	n.Apply(&Event{Op: Exit, PID: 8, Time: 10})
	n.Tell(Forget{20e9})
	if w := n.Snapshot(21e9, time.Time{}).Warnings; len(w) == 0 {
		t.Error("the incomplete opening has no warning")
	}
}
