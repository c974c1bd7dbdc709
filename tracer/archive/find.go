// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Found is a process of an archive, over all captures that have it.
type Found struct {
	Process                   // as its latest capture names it; Peak is the highest of all
	Boot, Session      string // Session: the latest that has it
	Captures           []*Capture
	From, To, PeakWall time.Time // time of day; PeakWall is zero without a peak
	Running            bool      // it ran at the end of the last capture of its session
}

// Filter chooses processes. Empty fields choose all.
type Filter struct {
	Process string // pid or name
	Pod     string // name, or NAMESPACE/NAME
	Job     string // number or name
	From    time.Time
	To      time.Time
}

func (f *Filter) passes(p *Process) bool {
	return MatchesProcess(f.Process, p.PID, p.Comm) && MatchesPod(f.Pod, p.Namespace, p.Pod) && MatchesJob(f.Job, p.Job)
}

// MatchesProcess reports whether a process is meant by its pid or its name; "" means every process.
func MatchesProcess(text string, pid uint32, comm string) bool {
	return text == "" || text == comm || text == strconv.FormatUint(uint64(pid), 10)
}

// MatchesPod reports whether a pod is meant by NAME or NAMESPACE/NAME; "" means everything.
func MatchesPod(text, namespace, pod string) bool {
	return text == "" || pod != "" && (text == pod || text == namespace+"/"+pod)
}

// MatchesJob reports whether a job, "NAME (NUMBER)" or the part that is known, is meant by its
// number or its name; "" means everything.
func MatchesJob(text, job string) bool {
	return text == "" || text == job || strings.HasSuffix(job, " ("+text+")") || strings.HasPrefix(job, text+" (")
}

// maxFound is how many processes Processes returns at most.
const maxFound = 100_000

type foundKey struct {
	boot, session string
	pid           uint32
	begin         uint64
}

// startedKey identifies a process in all sessions of a boot, but not the programs that it executed
// one after another.
type startedKey struct {
	boot    string
	pid     uint32
	started uint64
}

// Processes returns the processes that pass a filter, highest peak first, and how many more there
// were without an entry in an index. Captures that cannot be read any more are left out.
func (a *Archive) Processes(f Filter) (list []*Found, more uint64) {
	by := map[foundKey]*Found{}
	last := map[startedKey]*Found{}
	for _, c := range a.captures {
		if !f.From.IsZero() && c.To.Before(f.From) || !f.To.IsZero() && c.From.After(f.To) {
			continue
		}
		x, err := c.Index()
		if err != nil {
			continue
		}
		more += x.More
		for i := range x.Processes {
			p := &x.Processes[i]
			if !f.passes(p) {
				continue
			}
			key := foundKey{c.Boot, c.Session, p.PID, p.Begin}
			found := by[key]
			if found == nil {
				found = goesOn(last, c, p)
			}
			if found == nil {
				if len(by) == maxFound {
					more++
					continue
				}
				found = &Found{Process: Process{PID: p.PID, Begin: p.Begin}, Boot: c.Boot, Session: c.Session, From: c.wall(max(p.Begin, c.Begin))}
				list = append(list, found)
			}
			by[key], last[startedKey{c.Boot, p.PID, p.Started}] = found, found
			found.add(c, p)
		}
	}
	slices.SortStableFunc(list, func(a, b *Found) int { return cmp.Compare(b.Peak, a.Peak) })
	return list, more
}

// goesOn returns the process of an earlier session that a later one found running, nil for another.
func goesOn(last map[startedKey]*Found, c *Capture, p *Process) *Found {
	f := last[startedKey{c.Boot, p.PID, p.Started}]
	if f == nil || p.Started == 0 || !f.Running || f.Session == c.Session || f.Comm != p.Comm {
		return nil
	}
	f.Session = c.Session
	return f
}

// add adds what a later capture has.
func (f *Found) add(c *Capture, p *Process) {
	sum, peak, at := f.OOMs+p.OOMs, f.Peak, f.PeakTime
	f.Process = *p
	f.Captures = append(f.Captures, c)
	f.OOMs = sum
	f.To, f.Running = c.To, p.End == 0
	if p.End != 0 {
		f.To = c.wall(p.End)
	}
	if p.Peak > peak || f.PeakWall.IsZero() && p.Peak > 0 {
		f.PeakWall = c.wall(p.PeakTime)
	} else {
		f.Peak, f.PeakTime = peak, at
	}
}

// wall returns the time of day at a moment of the capture's clock.
func (c *Capture) wall(at uint64) time.Time { return c.From.Add(time.Duration(at - c.Begin)) }

// Error is an out-of-memory error of an archive.
type Error struct {
	OOM
	Wall    time.Time
	Capture *Capture
}

// Errors returns the out-of-memory errors of processes that pass a filter, oldest first, and how
// many more there were.
func (a *Archive) Errors(f Filter) (list []Error, more uint64) {
	for _, c := range a.Between(f.From, cmp.Or(f.To, endOfTime)) {
		x, err := c.Index()
		if err != nil {
			continue
		}
		more += x.MoreOOMs
		pods := map[uint32]*Process{}
		for i := range x.Processes {
			pods[x.Processes[i].PID] = &x.Processes[i]
		}
		for _, o := range x.OOMs {
			p := pods[o.PID]
			if !MatchesProcess(f.Process, o.PID, o.Comm) || (f.Pod != "" || f.Job != "") && (p == nil || !f.passes(p)) {
				continue
			}
			list = append(list, Error{o, c.wall(o.Time), c})
		}
	}
	return list, more
}

var endOfTime = time.Unix(1<<40, 0)
