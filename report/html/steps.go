// SPDX-License-Identifier: Apache-2.0

package html

import (
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// stepsData is the steps of a process on the GPU on which its tensors had most, and the step of
// their peak.
type stepsData struct {
	Title   string   `json:"title"`
	Texts   []string `json:"texts"`
	Numbers []uint64 `json:"numbers"` // of steps
	Highs   []uint64 `json:"highs"`   // the most that each had
	// The step of the peak; without one, there is no Name.
	Name   string      `json:"name"`
	From   int64       `json:"from"` // ns since the session began
	To     int64       `json:"to"`
	Curve  [][2]int64  `json:"curve"` // times, and bytes from then on
	Runs   []runData   `json:"runs"`
	Phases []phaseData `json:"phases"`
}

type runData struct {
	Phase string `json:"phase"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
}

type phaseData struct {
	Phase  string `json:"phase"`
	Name   string `json:"name"`
	Time   uint64 `json:"time"`
	High   uint64 `json:"high"`
	Change int64  `json:"change"`
	Peak   bool   `json:"peak"`
}

const (
	maxStepProcesses = 32
	mostLiveSteps    = 200 // of a process on a page that follows a session
)

// fewer joins neighbors, of which the highest counts, until there are at most so many.
func fewer(numbers, highs []uint64, most int) (n, h []uint64) {
	stride := (len(highs) + most - 1) / most
	if stride <= 1 {
		return numbers, highs
	}
	for i := 0; i < len(highs); i += stride {
		n, h = append(n, numbers[i]), append(h, slices.Max(highs[i:min(i+stride, len(highs))]))
	}
	return n, h
}

// addSteps adds the steps of processes.
func (b *builder) addSteps() {
	for i := range b.s.Processes {
		p := &b.s.Processes[i]
		x := b.in.Steps.Of(p.PID, p.Begin, p.End)
		if x == nil || len(b.p.Steps) >= maxStepProcesses {
			continue
		}
		k := max(x.Index(x.Main()), 0)
		d := stepsData{Title: format.Process(p) + " on " + format.Device(x.Main(), ledger.Device), Texts: []string{untrusted.Clean(x.Text())}}
		d.Numbers, d.Highs = x.Highs(k)
		if b.in.Live != nil { // it is sent again and again
			d.Numbers, d.Highs = fewer(d.Numbers, d.Highs, mostLiveSteps)
		}
		if at, bytes, ok := x.Peak(k); ok {
			d.Texts = append(d.Texts, "The peak of its tensors, "+format.Bytes(bytes)+", is "+x.PlaceText(at)+".")
			b.addStep(&d, at, k)
		}
		if grows := x.Growth(k).Text(); grows != "" {
			d.Texts = append(d.Texts, "Tensors grow by "+grows+".")
		}
		b.p.Steps = append(b.p.Steps, d)
	}
}

// addStep adds the step in which a place lies.
func (b *builder) addStep(d *stepsData, at steps.Place, k int) {
	x := at.Detail
	if x == nil {
		return
	}
	if at.Between {
		x = x.Between()
	}
	from, to := x.Span()
	d.Name, d.From, d.To = strings.Replace(at.Name(), "between", "between steps", 1), int64(since(from, b.s.Begin)), int64(since(to, b.s.Begin))
	for _, p := range x.Curve(k) {
		d.Curve = append(d.Curve, [2]int64{int64(since(p.Time, b.s.Begin)), int64(p.Bytes)})
	}
	for _, r := range x.Phases() {
		d.Runs = append(d.Runs, runData{r.Phase.String(), int64(since(r.From, b.s.Begin)), int64(since(r.To, b.s.Begin))})
	}
	for _, p := range x.Parts(k) {
		d.Phases = append(d.Phases, phaseData{p.Phase.String(), steps.PhaseText(p.Phase), p.Time, p.High, p.Change, p.Phase == at.Phase})
	}
}
