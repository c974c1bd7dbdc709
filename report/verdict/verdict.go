// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"time"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Class is the behavior of a site over time, from harmless to worst.
type Class uint8

const (
	Unknown Class = iota // nothing is known of when it was allocated
	OneOff               // allocated early and not since
	Steady               // comes and goes
	Cache                // keeps memory for long, but does not grow
	Growing              // grows; may be warming up, or was not observed for long enough
	Leaking              // grows without end
)

var classNames = [...]string{Unknown: "unknown", OneOff: "one-off", Steady: "steady", Cache: "cache", Growing: "growing", Leaking: "leaking"}

func (c Class) String() string {
	if int(c) >= len(classNames) {
		c = Unknown
	}
	return classNames[c]
}

// Rate is the growth of live memory in bytes per second, with its 95 % interval. All three are 0
// without growth.
type Rate struct{ Value, Low, High float64 }

// Verdict is the judgement on one site, or on the sum of several.
type Verdict struct {
	Class     Class
	Score     float64       // 0 to 1: probability that the next window of time grows too, by the rule of succession; 0 for segments
	Rate      Rate          // of Growing and Leaking
	Over      time.Duration // of Growing and Leaking: how long it has grown
	Needs     time.Duration // of Growing: how much longer to trace until it can be decided; 0: unknown
	UntilFull time.Duration // of Leaking: until its GPU is full at this rate; 0: unknown
	Evidence  string        // one line without a full stop, and without text of the traced process
	Object    Object        // only where the stack proves it
	Line      callstack.Frame
	Head      int  // the index of Line in the stack that frames.Visible returns, of a Group in that of its first site
	User      bool // Line is in the user's own code, not in a library's

	byLevel  bool // the floor or the mean proves the rate, not survivors
	presumed bool // an estimate, see judge.presumed
	horizon  int  // as in series
	life     life // what it is about
}

// judge holds what all verdicts of one snapshot need.
type judge struct {
	s        *ledger.Snapshot
	st       callstack.Stacks
	reports  []bool                     // by process: PyTorch's allocator reports its tensors
	lives    []life                     // by process
	totals   map[totalKey]series        // of what leaks, by need
	replaced map[processDevice][]uint64 // Tensors.OlderFreed
	thinned  map[processDevice]bool     // the limit on stacks halved the rate of its sample
	keepers  map[int]*keepers           // by process, by need

	estimates map[processDevice]*estimate // by need
}

// processDevice is a device of a process.
type processDevice struct {
	process int
	device  int32
}

type totalKey struct {
	process int
	device  int32
	kind    ledger.Kind
	horizon int
}

func newJudge(s *ledger.Snapshot, st callstack.Stacks) *judge {
	j := &judge{
		s: s, st: st, reports: make([]bool, len(s.Processes)), lives: make([]life, len(s.Processes)),
		totals: map[totalKey]series{}, replaced: map[processDevice][]uint64{},
		keepers: map[int]*keepers{}, thinned: map[processDevice]bool{},
		estimates: map[processDevice]*estimate{},
	}
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.Device >= 0 {
			j.thinned[processDevice{t.Process, t.Device}] = t.Halvings > 0
			j.reports[t.Process] = true
			j.replaced[processDevice{t.Process, t.Device}] = t.OlderFreed[:]
		}
	}
	for i := range j.lives {
		j.lives[i] = life{begin: s.End - s.Begin}
	}
	for i := range s.Sites {
		x := &s.Sites[i]
		l := &j.lives[x.Process]
		for k, w := range x.Cohorts {
			if w.AllocObjects == 0 && w.AllocBytes == 0 {
				continue
			}
			from := x.FirstWindow + uint64(k)*x.Window
			l.begin, l.end = min(l.begin, from), max(l.end, from+x.Window)
		}
	}
	for i := range j.lives {
		l, p := &j.lives[i], &s.Processes[i]
		l.end = min(l.end, s.End-s.Begin)
		if p.End != 0 && p.End > s.Begin {
			l.ended, l.end = true, min(l.end, p.End-s.Begin)
		}
		l.begin = min(l.begin, l.end)
	}
	return j
}

func (j *judge) stack(x *ledger.Site) []callstack.Frame {
	id := x.Stack
	if j.st == nil {
		id = 0
	}
	return frames.Visible(j.st, id, x.API)
}

// headed sets the headline of a verdict.
func (v *Verdict) headed(stack []callstack.Frame, at int) {
	v.Line, v.Head, v.User = stack[at], at, isUser(stack, at)
}

// Group sums what one line of a process allocates of one kind on one device. A line of a model has
// a stack for each tensor of its forward pass; the line is what leaks.
type Group struct {
	Verdict
	Process int // index into Snapshot.Processes
	Device  int32
	Kind    ledger.Kind
	Segment bool  // these are segments of PyTorch's allocator
	Sites   []int // indices into Snapshot.Sites: those that leak first, then by rate and live bytes

	// Bytes per second by which the GPU fills in all, if this group leaks there: UntilFull is at
	// this rate. 0: unknown.
	GPURate float64

	LiveObjects, LiveBytes   uint64
	AllocObjects, AllocBytes uint64
}
