// SPDX-License-Identifier: Apache-2.0

package html

import (
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// ended is the fixture after the end of these processes.
func ended(list ...int) Input {
	in := fixture()
	s := *in.Snapshot
	s.Processes = slices.Clone(s.Processes)
	for _, i := range list {
		s.Processes[i].End = s.End - second
		s.Processes[i].Totals = []ledger.Total{{Kind: ledger.Device, PeakBytes: gib, PeakTime: begin + 20*second}}
	}
	for _, i := range list {
		books := in.Snapshot.Only(func(p *ledger.Process) bool { return p.PID == s.Processes[i].PID })
		s.Peaks = append(s.Peaks, ledger.Peak{Process: i, Bytes: s.Processes[i].PeakBytes, Time: begin + 117*second, Books: books})
	}
	in.Snapshot = &s
	in.Past = purpose.AtPeaks(&s, in.Stacks, nil, MaxPast)
	return in
}

func TestThePageOfAnEndedSessionOpensAtItsErrorOrPeak(t *testing.T) {
	in := ended(0, 1, 2)
	if got, want := newPayload(&in).Opening, (openingData{118, "python3 [4242] ran out of memory at 1m58s (wanted 2.00 GiB); 3 processes have ended", "the error"}); got == nil || *got != want {
		t.Errorf("with an error: %+v, want %+v", got, want)
	}
	in.Timeline.Marks[2].Time -= 60 * second
	if got := newPayload(&in).Opening; got == nil || got.Moment != 117 || got.What != "the peak" || !strings.HasPrefix(got.Text, "python3 [4242] ran out of memory at 58s") {
		t.Errorf("with an error that the program survived: %+v", got)
	}
	in.Timeline.Marks = slices.DeleteFunc(in.Timeline.Marks, func(m timeline.Mark) bool { return m.Kind == timeline.OutOfMemory })
	if got, want := newPayload(&in).Opening, (openingData{117, "3 processes have ended", "the peak"}); got == nil || *got != want {
		t.Errorf("without an error: %+v, want %+v", got, want)
	}
	in = ended(0, 1) // the server runs on
	in.Snapshot.Processes[2].Totals = []ledger.Total{{Kind: ledger.Device, PeakBytes: gib, PeakTime: begin + 20*second}}
	if got := newPayload(&in).Opening; got != nil {
		t.Errorf("while a process runs: %+v", got)
	}
	in = ended(0, 1, 2)
	in.Timeline = nil
	if got := newPayload(&in).Opening; got != nil {
		t.Errorf("without a timeline: %+v", got)
	}
}

// endedPage: the end is not what is shown first.
func endedPage(t *testing.T, b *browser) {
	in := ended(0, 1, 2)
	p := b.open(t, written(t, in), 1280, 1000, "dark")
	if got, want := p.number("#flame", "total"), rowsAt(in, 118); !near(got, want) {
		t.Errorf("opened with %.0f bytes, want %.0f", got, want)
	}
	p.says(map[string]string{"#opening": "3 processes have ended. Shown is what was held at the error, after 1m58s. Show what was left", "#range-text": "after 1m58s"})
	p.screenshot("ended")
	if got, want := p.sum(), format.Bytes(uint64(rowsAt(in, 118))); got != want {
		t.Errorf("opened with %s in the reconciliation, want %s", got, want)
	}
	p.says(map[string]string{"#parts-head": "Where the GPU's bytes were after 1m58s", "#gpus": "at the end"})
	p.click("#opening button")
	if got, want := p.sum(), format.Bytes(uint64(sum(in, ""))); got != want {
		t.Errorf("at the end %s in the reconciliation, want %s", got, want)
	}
	p.says(map[string]string{"#parts-head": "Where the GPU's bytes are at the end"})
	p.addressed("#at=end")
	if got, want := p.number("#flame", "total"), sum(in, ""); !near(got, want) {
		t.Errorf("at the end %.0f bytes, want %.0f", got, want)
	}
	p.press("Escape")
	p.says(map[string]string{"#range-text": "after 1m58s"})
	p.load("#at=end")
	p.says(map[string]string{"#range-text": "at the end", "#opening": "Show what was held at the error, after 1m58s"})
	p.clean()
}
