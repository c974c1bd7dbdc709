// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"
	"time"

	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/defects"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Verdicts take at most 1/judgeShare of a processor, and are at least leastJudge apart.
const (
	judgeShare   = 100
	leastJudge   = 10 * time.Second
	longestJudge = time.Minute
)

// judge has the verdicts on the lines of an earlier snapshot. A goroutine of its own makes them: the
// first ones name many stacks.
type judge struct {
	stacks callstack.Stacks

	mu       sync.Mutex // guards what follows
	running  bool
	due      time.Time
	cost     time.Duration // of the latest
	verdicts []lineVerdict
	at       uint64            // end of the snapshot, ns; 0: none
	failed   map[string]uint64 // panics by place
}

// lineVerdict is the verdict on one line of code.
type lineVerdict struct {
	process processKey
	device  int32
	kind    ledger.Kind
	class   verdict.Class
	bytes   uint64
	rate    float64
}

// start has a snapshot judged if it is time to.
func (j *judge) start(s *ledger.Snapshot) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.running || time.Now().Before(j.due) {
		return
	}
	j.running = true
	go j.run(s)
}

func (j *judge) run(s *ledger.Snapshot) {
	begin := time.Now()
	var list []lineVerdict
	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if recover() != nil {
			j.failed[defects.Panicked()]++
		} else {
			j.verdicts, j.at = list, s.End
		}
		now := time.Now()
		cost := now.Sub(begin)
		if j.cost == 0 {
			j.cost = cost
		}
		j.due = now.Add(min(max(judgeShare*min(cost, j.cost), leastJudge), longestJudge))
		j.cost, j.running = cost, false
	}()
	list = lineVerdicts(s, j.stacks)
}

// lineVerdicts returns the verdicts on the lines of running processes. Segments of PyTorch's
// allocator have none of their own: a leak shows in their tensors.
func lineVerdicts(s *ledger.Snapshot, st callstack.Stacks) (list []lineVerdict) {
	for _, g := range verdict.JudgeLines(s, verdict.Judge(s, st)) {
		if p := &s.Processes[g.Process]; p.End == 0 && !g.Segment && g.Kind != ledger.Imported && g.LiveBytes > 0 {
			list = append(list, lineVerdict{keyOf(p), g.Device, g.Kind, g.Class, g.LiveBytes, g.Rate.Value})
		}
	}
	return list
}

// verdictsAt are verdicts and the end of their snapshot.
type verdictsAt struct {
	list   []lineVerdict
	at     uint64
	failed map[string]uint64
}

func (j *judge) latest() verdictsAt {
	j.mu.Lock()
	defer j.mu.Unlock()
	failed := make(map[string]uint64, len(j.failed))
	for place, n := range j.failed {
		failed[place] = n
	}
	return verdictsAt{j.verdicts, j.at, failed}
}

// judge adds verdicts to the rows of processes that still run.
func (d *reading) judge(v verdictsAt) {
	at := make(map[processKey]int, len(d.s.Processes))
	for i := range d.s.Processes {
		if d.runs(i) {
			at[keyOf(&d.s.Processes[i])] = i
		}
	}
	for i := range v.list {
		x := &v.list[i]
		process, runs := at[x.process]
		if !runs || int(x.class) >= len(row{}.verdicts) {
			continue
		}
		j := &d.row(process, d.uuidOf(process, x.device, x.kind)).verdicts[x.class]
		j.lines++
		j.bytes += x.bytes
		j.rate += max(x.rate, 0)
	}
}
