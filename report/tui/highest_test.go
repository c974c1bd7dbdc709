// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// redrawn plays a training whose activations come and go in each step, and returns the books at
// each redraw, which is at the end of a step: nothing but the model is left then. Between two
// readings of NVML one step needs more than all others.
func redrawn(redraws uint64) (list []Moment, l *ledger.Ledger) {
	const mib, second = reporttest.MiB, reporttest.Second
	l = ledger.New(ledger.Options{Begin: second})
	l.Tell(ledger.GPUs{{UUID: "GPU-a", Total: 80 << 30, Used: 300 * mib}})
	l.Tell(ledger.Process{PID: 7, Comm: "python3", Begin: second, Devices: []string{"GPU-a"}})
	l.Tell(ledger.UsageReading{Time: second, Usages: []ledger.Usage{{PID: 7, UUID: "GPU-a", Bytes: 300 * mib}}})
	event := func(op ledger.Op, at, address, size, stack uint64) {
		l.Apply(&ledger.Event{Op: op, Kind: ledger.Device, PID: 7, TID: 7, Time: at, Address: address, Size: size, Stack: stack, API: "cudaMalloc"})
	}
	event(ledger.Alloc, second+1, 1, 100*mib, 1)
	for i := range redraws {
		at := (2 + i) * second
		size := uint64(1000)
		if i == 3 {
			size = 3000
		}
		event(ledger.Alloc, at+second/10, 2, size*mib, 2)
		event(ledger.Free, at+second/2, 2, 0, 0)
		l.Tell(ledger.UsageReading{Time: at + second*3/4, Usages: []ledger.Usage{{PID: 7, UUID: "GPU-a", Bytes: 400 * mib}}})
		l.Tell(ledger.GPUs{{UUID: "GPU-a", Total: 80 << 30, Used: 400 * mib}})
		s := l.Snapshot(at+second-1, time.Time{})
		l.AddHighest(s)
		list = append(list, Moment{Snapshot: s, Stacks: reporttest.Stacks(), Judged: Judge(s, reporttest.Stacks())})
	}
	return list, l
}

// TestLinesAndCurvesShowTheHighestSinceTheLastRedraw, though each redraw comes between two steps.
func TestLinesAndCurvesShowTheHighestSinceTheLastRedraw(t *testing.T) {
	list, _ := redrawn(6)
	m := New(Options{Flat: true})
	for i, x := range list {
		m.take(m.feed.reader.read(x))
		if i == 0 {
			continue // the first reading begins the first interval
		}
		want := int64(1000 * reporttest.MiB)
		if i == 3 {
			want *= 3
		}
		var own, sum int64
		for k := range m.shown.lines {
			if l := &m.shown.lines[k]; l.plane < barPlanes {
				own, sum = max(own, l.own), sum+l.own
			}
		}
		p, g := &m.shown.processes[0], &m.shown.gpus[0]
		all := want + int64(400*reporttest.MiB)
		if own != want || sum != all || p.live != all || int64(g.used) != all {
			t.Errorf("redraw %d: the largest line has %d, all lines %d, the process %d, the GPU %d, want %d and %d", i, own, sum, p.live, g.used, want, all)
		}
		for name, v := range map[string]*values{"process": &m.series.rows[p.key].all, "GPU": &m.series.gpus[g.key].all} {
			if got := v.at(len(m.series.times) - 1); got != all {
				t.Errorf("redraw %d: the curve of the %s is at %d, want %d", i, name, got, all)
			}
		}
	}
}

// TestAMomentThatWasPassedOverIsInTheHighest: while the books of one moment are summed up, only the
// latest of the others waits.
func TestAMomentThatWasPassedOverIsInTheHighest(t *testing.T) {
	list, _ := redrawn(6)
	m := New(Options{Flat: true})
	_, sum := m.Update(list[1])
	for _, x := range list[2:5] { // the fourth needs most
		if _, cmd := m.Update(x); cmd != nil {
			t.Fatal("two moments are summed up at a time")
		}
	}
	run(m, sum)
	if got, want := m.shown.processes[0].live, int64(3400*reporttest.MiB); got != want || m.shown.Snapshot.End != list[4].Snapshot.End {
		t.Errorf("%d bytes are shown, want %d", got, want)
	}
}

// TestMomentsAreDrawnWhileMoreWait: where summing up takes longer than a redraw, one always waits.
func TestMomentsAreDrawnWhileMoreWait(t *testing.T) {
	list := over(moments()["torch"], 4)
	m := screenOf(120, 40, Options{}, list[0])
	m.View()
	_, sum := m.Update(list[1])
	for _, x := range list[2:] {
		m.Update(x)
		m.View()
		before := m.drawn
		_, sum = m.Update(sum())
		if m.View(); m.drawn == before || sum == nil {
			t.Fatal("the screen stays as it was while a moment waits")
		}
	}
}

// TestThePeakIsThatOfTheSummary, on a screen that saw the whole session, on one that came late, and
// after the end.
func TestThePeakIsThatOfTheSummary(t *testing.T) {
	list, l := redrawn(6)
	l.Apply(&ledger.Event{Op: ledger.Exit, PID: 7, Time: 9 * reporttest.Second})
	s := l.Snapshot(10*reporttest.Second, time.Time{})
	l.AddPeaks(s)
	var b bytes.Buffer
	if err := text.WriteSummary(&b, s, reporttest.Stacks(), report.Options{}, text.Screen{}); err != nil {
		t.Fatal(err)
	}
	const want = 3400 << 20
	if summary := "it held " + format.Bytes(want) + " at "; !strings.Contains(b.String(), summary) {
		t.Fatalf("the summary lacks %q:\n%s", summary, &b)
	}
	end := Moment{Snapshot: s, Stacks: reporttest.Stacks(), Ended: true}
	for name, moments := range map[string][]Moment{"whole": list, "late": list[5:], "ended": {end}, "whole, ended": append(list[:6:6], end)} {
		m := New(Options{})
		for _, x := range moments {
			m.take(m.feed.reader.read(x))
		}
		if got := m.shown.processes[0].peak; got != want {
			t.Errorf("%s: the screen has a peak of %d, the summary one of %d", name, got, want)
		}
	}
}
