// SPDX-License-Identifier: Apache-2.0

package oom

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	maxPending = 10               // records that are written, or wait for it
	maxPIDs    = 4096             // processes whose errors are counted by process
	maxNamed   = 32               // processes named in the summary: those with the most errors that were not recorded
	endWait    = 10 * time.Second // after the end of a session: later, no record is begun
)

// Recorder writes a record of each out-of-memory error, one at a time, and counts
// errors beyond the rate limit.
type Recorder struct {
	Write    func(Error) (path string, err error)      // writes a record
	Describe func(Error) string                        // "ran out of memory on cuda:0 (wanted 2.00 GiB)"
	Say      func(text string)                         // tells a person
	Lost     func() (all uint64, by map[uint32]uint64) // at most how many errors did not reach Add; may be nil

	wait sync.WaitGroup

	mu      sync.Mutex // guards what follows
	pending int
	latest  chan struct{} // closed when the latest record is written; nil: there is none
	ended   time.Time     // zero: not yet
	missed  uint64
	by      map[uint32]*count
	paths   map[uint32]string // of the latest record, by pid
}

// count counts how often a process ran out of memory.
type count struct {
	pid              uint32
	comm             string
	recorded, missed uint64
}

// Paths returns the path of the latest record of each process. It may be called on nil.
func (r *Recorder) Paths() map[uint32]string {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.paths)
}

// Unrecorded returns how many errors have no record. It may be called on nil.
func (r *Recorder) Unrecorded() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missed
}

// Add has an error recorded, or counts it. It never waits for a record to be written.
func (r *Recorder) Add(o Error) {
	if r.begin(o) == 1 {
		r.Say("too many out-of-memory errors: at most 3 per minute and process, 10 in total, are recorded; further ones are counted")
	}
}

// begin begins to record an error, or counts it and returns how many were missed so far.
func (r *Recorder) begin(o Error) (missed uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by, r.paths = map[uint32]*count{}, map[uint32]string{}
	}
	of := r.by[o.PID]
	if of == nil && len(r.by) < maxPIDs {
		of = &count{pid: o.PID, comm: o.Comm}
		r.by[o.PID] = of
	} else if of == nil {
		of = &count{}
	}
	if !r.ended.IsZero() || !o.Record || r.pending >= maxPending {
		r.missed++
		of.missed++
		return r.missed
	}
	of.recorded++
	r.pending++
	before, done := r.latest, make(chan struct{})
	r.latest = done
	r.wait.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		if !r.late(of) {
			r.record(o)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pending--
	})
	return 0
}

// late reports whether it is too late to begin a record. It counts the error as missed then.
func (r *Recorder) late(of *count) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended.IsZero() || time.Since(r.ended) < endWait {
		return false
	}
	of.recorded--
	of.missed++
	r.missed++
	return true
}

func (r *Recorder) record(o Error) {
	what := fmt.Sprintf("process %d %s", o.PID, r.Describe(o))
	path, err := r.Write(o)
	if path != "" {
		r.mu.Lock()
		if len(r.paths) >= maxPIDs { // serve records for months
			clear(r.paths)
		}
		if _, known := r.paths[o.PID]; known || len(r.paths) < maxPIDs {
			r.paths[o.PID] = path
		}
		r.mu.Unlock()
	}
	switch {
	case err == nil:
		r.Say(what + ": wrote " + path + " and .pb.gz")
	case path != "":
		r.Say(fmt.Sprintf("%s: wrote %s, but: %v", what, path, err))
	default:
		r.Say(fmt.Sprintf("%s: %v", what, err))
	}
}

// End waits until the records are written, but none is begun after endWait. It returns warnings
// about errors without a record. It may be called several times, and on nil.
func (r *Recorder) End() (warnings []string) {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	first := r.ended.IsZero()
	if first {
		r.ended = time.Now()
	}
	r.mu.Unlock()
	r.wait.Wait()
	if !first {
		return nil
	}
	r.mu.Lock()
	var lost uint64
	if r.Lost != nil {
		var by map[uint32]uint64
		lost, by = r.Lost()
		if r.by == nil {
			r.by = map[uint32]*count{}
		}
		for pid, n := range by {
			if r.by[pid] == nil {
				r.by[pid] = &count{pid: pid}
			}
			r.by[pid].missed += n
		}
	}
	text := missedText(r.missed, lost)
	list := countTexts(r.by)
	r.mu.Unlock()
	if text != "" {
		r.Say(text)
		list = append(list, text)
	}
	return list
}

// countTexts names each process that ran out of memory: "process 42 (train) ran out of memory 590
// times: 3 recorded".
func countTexts(by map[uint32]*count) (texts []string) {
	list := slices.SortedFunc(maps.Values(by), func(a, b *count) int {
		return cmp.Or(cmp.Compare(min(b.recorded, 1), min(a.recorded, 1)), cmp.Compare(b.missed, a.missed), cmp.Compare(a.pid, b.pid))
	})
	for _, x := range list[:min(len(list), maxNamed)] {
		who, times := fmt.Sprintf("process %d", x.pid), "once"
		if x.comm != "" {
			who += fmt.Sprintf(" (%s)", x.comm)
		}
		if n := x.recorded + x.missed; n > 1 {
			times = fmt.Sprintf("%d times", n)
		}
		texts = append(texts, fmt.Sprintf("%s ran out of memory %s: %d recorded", who, times, x.recorded))
	}
	if more := len(list) - maxNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("further processes that ran out of memory: %d", more))
	}
	return texts
}

// missedText returns "12 further out-of-memory errors were not recorded", "" for none.
func missedText(missed, lost uint64) string {
	more := ""
	if lost > 0 {
		missed += lost
		more = "up to "
	}
	switch missed {
	case 0:
		return ""
	case 1:
		return more + "1 further out-of-memory error was not recorded"
	}
	return fmt.Sprintf("%s%d further out-of-memory errors were not recorded", more, missed)
}
