// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// mine is a capture that panics where it is told to, in the place of a defect of the books.
type mine struct {
	ledger.Books
	events, readings, processes int // so many panic
}

func (m *mine) step(left *int) {
	if *left > 0 {
		*left--
		var none []int
		_ = none[*left+3]
	}
}

func (m *mine) Apply(e *ledger.Event) {
	if e.Op == ledger.Alloc {
		m.step(&m.events)
	}
	m.Books.Apply(e)
}

func (m *mine) Tell(in ledger.Input) {
	switch in := in.(type) {
	case ledger.UsageReading:
		m.step(&m.readings)
	case ledger.Process:
		if in.Workload != (ledger.Workload{}) || in.Comm == "" {
			m.step(&m.processes)
		}
	}
	m.Books.Tell(in)
}

// TestADefectCostsWhatItIsInAndIsSaid lets each goroutine of the tracer panic, and feeds it what no
// kernel sends.
func TestADefectCostsWhatItIsInAndIsSaid(t *testing.T) {
	m := newMachine(t, 1)
	capture := &mine{Books: ledger.New(ledger.Options{})}
	m.trace(func(c *Config) { c.Capture = capture })
	m.snapshot()
	tx := m.sequencer.Begin()
	capture.events, capture.readings, capture.processes = 3, 1, 1
	tx.Done()
	p := m.script("alloc_c", nil, "repeat 10", "malloc a 1000", "end", "print done", "wait")
	p.expect("done")
	m.eventually("each of them was met", func() bool {
		tx := m.sequencer.Begin()
		defer tx.Done()
		return capture.events+capture.readings+capture.processes == 0
	})
	m.reader.Take([]byte("no stack"))
	m.reader.Take(make([]byte, 1<<16))
	for kind := range 256 { // none of them may end the program
		m.events.book(&bpf.Event{Kind: bpf.Kind(kind), Pid: 1 << 30, Api: 255, Function: 255, Result: -1, Device: -5, Size: 1<<64 - 1, Address: 1<<64 - 1, Time: 1<<64 - 1}, nil)
	}
	s := m.snapshot()
	var objects uint64
	for _, c := range booked(t, s, p.pid()) {
		objects += c.Objects
	}
	if objects != 7 || s.Stats.Lost < 3 {
		t.Errorf("%d objects are booked and %d events lost, want 7 and 3", objects, s.Stats.Lost)
	}
	for _, what := range []string{"an event 3 times", "a reading of NVML 1 times", "a look at processes 1 times"} {
		m.said(s, fmt.Sprintf("an internal error lost %s, please report it: runtime error: index out of range", what))
	}
	if text := strings.Join(s.Warnings, "\n"); !strings.Contains(text, " at fault_defects_test.go:") {
		t.Errorf("no place is named:\n%s", text)
	}
	p.end()
}
