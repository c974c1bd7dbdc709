// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// StepsReport is the steps of a training: one process on one GPU. Bytes are of all tensors; times
// are since the session began.
type StepsReport struct {
	PID    uint32 `json:"pid"`
	Comm   string `json:"comm"`
	Device int32  `json:"device"`

	By          string        `json:"by"`   // optimizer.step, zero_grad, period
	Sure        string        `json:"sure"` // certain, likely, guess
	Count       uint64        `json:"count"`
	Open        bool          `json:"open"`    // another step is under way
	Partial     bool          `json:"partial"` // the first began before the attach
	Paused      bool          `json:"paused"`  // they count since the latest pause of tracing
	Lossy       bool          `json:"lossy"`   // some may be missing, since events were lost
	StepNS      uint64        `json:"step_ns"` // the time of a step in the middle
	Pace        float64       `json:"steps_per_second,omitempty"`
	Passes      int           `json:"backward_passes"`
	Unsampled   uint64        `json:"unsampled"`                 // of count: only their backward passes show them
	Missing     uint64        `json:"missing"`                   // estimate of steps that the sample lacks, beyond count
	GrowthBytes uint64        `json:"growth_bytes_per_step"`     // at most; 0 with a growth_bytes_per_step_low: unknown
	GrowthLow   uint64        `json:"growth_bytes_per_step_low"` // at least; equal where the growth is known
	Optimizers  []FrameReport `json:"optimizers"`                // lines that call optimizer.step
	Peak        *PlaceReport  `json:"peak,omitempty"`            // where the tensors had their peak
	Moment      *PlaceReport  `json:"moment,omitempty"`          // where the moment of the report lies
	List        []StepReport  `json:"list"`                      // by number; of very many, neighbors are joined
	Text        string        `json:"text"`                      // for people
}

// PlaceReport is where in the steps a moment lies.
type PlaceReport struct {
	Step    uint64        `json:"step"`            // from 1 on; of between: the last one before, 0: none
	Between bool          `json:"between"`         // between two steps
	Phase   string        `json:"phase,omitempty"` // data, forward, evaluation, backward, step, setup
	Bytes   uint64        `json:"bytes,omitempty"` // of the peak
	Text    string        `json:"text"`            // for people
	Phases  []PhaseReport `json:"phases"`          // of the step
	Curve   []PointReport `json:"curve"`           // of the step, by time
}

// PointReport is what all tensors had from a time on.
type PointReport struct {
	AtNS  uint64 `json:"at_ns"`
	Bytes uint64 `json:"bytes"`
}

// PhaseReport is a phase of a step. Phases without name are none that is known.
type PhaseReport struct {
	Phase  string `json:"phase"`
	TimeNS uint64 `json:"time_ns"`
	High   uint64 `json:"high_bytes"`
	Change int64  `json:"change_bytes"` // bytes that are there after it and were not before
}

// StepReport is one step, or several that follow each other.
type StepReport struct {
	Step   uint64 `json:"step"` // from 1 on: the first of them
	Count  uint64 `json:"count"`
	FromNS uint64 `json:"from_ns"`
	ToNS   uint64 `json:"to_ns"`
	High   uint64 `json:"high_bytes"`
	End    uint64 `json:"end_bytes"` // what was left after it
}

// stepsReports returns the steps of a process, for each of its devices.
func stepsReports(s *ledger.Snapshot, process int, o report.Options) (list []StepsReport) {
	p := &s.Processes[process]
	x := o.Steps.Of(p.PID, p.Begin, p.End)
	if x == nil {
		return nil
	}
	for k := range x.Devices {
		r := stepsReport(s, x, k, p.End == 0)
		r.PID, r.Comm, r.Device = p.PID, untrusted.Clean(p.Comm), x.Devices[k]
		list = append(list, r)
	}
	return list
}

func stepsReport(s *ledger.Snapshot, x *steps.Steps, k int, running bool) StepsReport {
	r := StepsReport{
		By: x.By.String(), Sure: x.Sure.String(), Count: x.Count, Open: x.Open, Partial: x.Partial, StepNS: x.Each, Passes: x.Passes, Unsampled: x.Unseen, Missing: x.Missing,
		Paused: x.Paused, Lossy: x.Lossy, Pace: x.Pace(), GrowthBytes: x.Growth(k).High, GrowthLow: x.Growth(k).Low,
		Optimizers: []FrameReport{}, List: []StepReport{}, Text: untrusted.Clean(x.Text()),
	}
	for i := range x.Optimizers {
		r.Optimizers = append(r.Optimizers, stackReport(x.Optimizers[i : i+1])[0])
	}
	for i := range x.List {
		if y := &x.List[i]; k < len(y.High) {
			r.List = append(r.List, StepReport{y.Number, y.Count, report.Minus(y.From, s.Begin), report.Minus(y.To, s.Begin), y.High[k], y.End[k]})
		}
	}
	if at, bytes, ok := x.Peak(k); ok {
		r.Peak = placeReport(s, x, at, k)
		r.Peak.Bytes = bytes
	}
	if at, ok := x.Now(s.End, running); ok {
		r.Moment = placeReport(s, x, at, k)
	}
	return r
}

func placeReport(s *ledger.Snapshot, x *steps.Steps, at steps.Place, device int) *PlaceReport {
	r := &PlaceReport{Step: at.Step, Between: at.Between, Phase: at.Phase.String(), Text: untrusted.Clean(x.PlaceText(at)), Phases: []PhaseReport{}, Curve: []PointReport{}}
	d := at.Detail
	if d == nil {
		return r
	}
	if at.Between {
		d = d.Between()
	}
	for _, p := range d.Parts(device) {
		r.Phases = append(r.Phases, PhaseReport{p.Phase.String(), p.Time, p.High, p.Change})
	}
	for _, p := range d.Curve(device) {
		r.Curve = append(r.Curve, PointReport{report.Minus(p.Time, s.Begin), p.Bytes})
	}
	return r
}
