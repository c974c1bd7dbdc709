// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"slices"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Verdict is what is judged of one line of code, in one process or in several of a job.
type Verdict struct {
	verdict.Group       // the worst, with the sites and live memory of all
	Groups        []int // indices of all, the worst first
	Processes     []int // that they are of, sorted
}

// Several reports whether the verdict is of more than one process.
func (v *Verdict) Several() bool { return len(v.Processes) > 1 }

type verdictKey struct {
	job     int
	kind    ledger.Kind
	segment bool
	class   verdict.Class
	line    callstack.Frame
}

// Alike returns the same for verdicts that are joined. All that grow are alike, as the same leak
// may be certain in some processes alone, and all that do not.
func Alike(c verdict.Class) verdict.Class {
	if c >= verdict.Growing {
		return verdict.Growing
	}
	return verdict.Cache
}

// Verdicts joins the verdicts of a snapshot on the same line in several processes of a job, if they
// are alike. The order stays that of the worst.
func (j *Jobs) Verdicts(groups []verdict.Group) (list []Verdict) {
	at := map[verdictKey]int{}
	for i := range groups {
		g := &groups[i]
		k := verdictKey{j.Of(g.Process), g.Kind, g.Segment, Alike(g.Class), lineOf(&g.Line)}
		n, known := at[k]
		if !known {
			n = len(list)
			at[k] = n
			list = append(list, Verdict{})
		}
		v := &list[n]
		if v.Groups = append(v.Groups, i); !slices.Contains(v.Processes, g.Process) {
			v.Processes = append(v.Processes, g.Process)
		}
	}
	return apart(list, groups)
}

// apart divides what turned out to be of one process, on several devices. It keeps the order.
func apart(list []Verdict, groups []verdict.Group) (out []Verdict) {
	for i := range list {
		v := &list[i]
		if v.Several() {
			slices.Sort(v.Processes)
			v.sum(groups)
			out = append(out, *v)
			continue
		}
		for _, n := range v.Groups {
			out = append(out, Verdict{groups[n], []int{n}, v.Processes})
		}
	}
	slices.SortStableFunc(out, func(a, b Verdict) int { return a.Groups[0] - b.Groups[0] })
	return out
}

func (v *Verdict) sum(groups []verdict.Group) {
	v.Group = groups[v.Groups[0]]
	v.Sites = slices.Clone(v.Sites)
	for _, n := range v.Groups[1:] {
		g := &groups[n]
		v.Sites = append(v.Sites, g.Sites...)
		v.LiveObjects += g.LiveObjects
		v.LiveBytes += g.LiveBytes
		v.AllocObjects += g.AllocObjects
		v.AllocBytes += g.AllocBytes
	}
}

// lineOf returns what is the same of a line in all processes.
func lineOf(f *callstack.Frame) callstack.Frame {
	return callstack.Frame{Function: f.Function, File: f.File, Line: f.Line, Python: f.Python, Mark: f.Mark}
}

// Growth returns how much a line grows in each process and in all: "grows 12.0 MiB a step in each
// of 8 processes (ranks 0 to 7), 96.0 MiB a step together", "grows 700 MiB/min in …". Steps are nil
// where they are unknown.
func (j *Jobs) Growth(v *Verdict, groups []verdict.Group, of func(process int) *steps.Steps) string {
	rates, known := make([]float64, len(v.Processes)), true
	stepped := make([]steps.Rate, len(v.Processes))
	for i, process := range v.Processes {
		for _, n := range v.Groups {
			if g := &groups[n]; g.Process == process {
				rates[i] += g.PerSecond()
			}
		}
		x := of(process)
		if known = known && x != nil; known {
			stepped[i] = x.PerStep(rates[i])
			known = rates[i] == 0 || stepped[i] != steps.Rate{}
		}
	}
	if slices.Max(rates) == 0 { // for all that is known
		return "grows " + j.Text(v.Processes)
	}
	each, together := perMinute(rates)
	if known {
		each, together = perStep(stepped)
	}
	text := "grows " + each + " " + j.Text(v.Processes) + ", " + together + " together"
	if n := Most(rates); n >= 0 {
		text += ", most in " + j.Names(v.Processes[n:n+1])
	}
	return text
}

// perMinute returns "700 to 720 MiB/min" and the sum.
func perMinute(rates []float64) (each, together string) {
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return between(uint64(slices.Min(rates)*60), uint64(slices.Max(rates)*60)) + "/min", format.Bytes(uint64(sum*60)) + "/min"
}

// perStep returns "12.0 MiB a step" and the sum.
func perStep(rates []steps.Rate) (each, together string) {
	least, sum := rates[0], steps.Rate{}
	open := false // no more is known than the least
	for _, r := range rates {
		least.Low, least.High = min(least.Low, r.Low), max(least.High, r.High)
		sum.Low, sum.High = sum.Low+r.Low, sum.High+r.High
		open = open || r.High == 0 && r.Low > 0
	}
	if open {
		least.High, sum.High = 0, 0
	}
	return least.Text(), sum.Text()
}

// Between returns "12.0 MiB to 1.00 GiB" of values, or "12.0 MiB" if they are equal.
func Between(values []uint64) string { return between(slices.Min(values), slices.Max(values)) }

func between(low, high uint64) string {
	if a, b := format.Bytes(low), format.Bytes(high); a != b {
		return a + " to " + b
	}
	return format.Bytes(high)
}
