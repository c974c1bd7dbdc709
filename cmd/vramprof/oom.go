// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom"
)

const (
	maxOOMPending = 10          // records that are written, or wait for it
	maxOOMPIDs    = 4096        // processes whose errors are counted by process
	maxOOMTold    = 32          // processes named in the summary: those with the most errors that were not recorded
	maxOOMUsers   = 1000        // processes of a reading that get names
	oomStackWait  = time.Second // for a stack that arrives after its event
	oomNVMLWait   = 5 * time.Second
	oomEndWait    = 10 * time.Second // after the end of a session: later, no record is begun
)

// oomRecorder writes a record of each out-of-memory error, one at a time, and counts
// errors beyond the rate limit.
type oomRecorder struct {
	stderr io.Writer
	write  func(oom.Error) (path string, err error)
	lost   func() (all uint64, by map[uint32]uint64) // at most how many errors did not reach take; may be nil
	wait   sync.WaitGroup

	mu      sync.Mutex // guards what follows
	pending int
	latest  chan struct{} // closed when the latest record is written; nil: there is none
	ended   time.Time     // zero: not yet
	missed  uint64
	by      map[uint32]*oomCount
	paths   map[uint32]string // of the latest record, by pid
}

// oomCount counts how often a process ran out of memory.
type oomCount struct {
	pid              uint32
	comm             string
	recorded, missed uint64
}

// records returns the path of the latest record of each process. It may be called on nil.
func (r *oomRecorder) records() map[uint32]string {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.paths)
}

// unrecorded returns how many errors have no record. It may be called on nil.
func (r *oomRecorder) unrecorded() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missed
}

func newOOMRecorder(stderr io.Writer, write func(oom.Error) (string, error)) *oomRecorder {
	return &oomRecorder{stderr: stderr, write: write, by: map[uint32]*oomCount{}, paths: map[uint32]string{}}
}

// take has an error recorded, or counts it. It never waits for a record to be written.
func (r *oomRecorder) take(o oom.Error) {
	if r.begin(o) == 1 {
		r.say("too many out-of-memory errors: at most 3 per minute and process, 10 in total, are recorded; further ones are counted")
	}
}

// begin begins to record an error, or counts it and returns how many were missed so far.
func (r *oomRecorder) begin(o oom.Error) (missed uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.by[o.PID]
	if of == nil && len(r.by) < maxOOMPIDs {
		of = &oomCount{pid: o.PID, comm: o.Comm}
		r.by[o.PID] = of
	} else if of == nil {
		of = &oomCount{}
	}
	if !r.ended.IsZero() || !o.Record || r.pending >= maxOOMPending {
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
func (r *oomRecorder) late(of *oomCount) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended.IsZero() || time.Since(r.ended) < oomEndWait {
		return false
	}
	of.recorded--
	of.missed++
	r.missed++
	return true
}

func (r *oomRecorder) record(o oom.Error) {
	x := oomReport(o)
	what := fmt.Sprintf("process %d %s", o.PID, x.Text())
	path, err := r.write(o)
	if path != "" {
		r.mu.Lock()
		if len(r.paths) >= maxOOMPIDs { // serve records for months
			clear(r.paths)
		}
		if _, known := r.paths[o.PID]; known || len(r.paths) < maxOOMPIDs {
			r.paths[o.PID] = path
		}
		r.mu.Unlock()
	}
	switch {
	case err == nil:
		r.say(what + ": wrote " + path + " and .pb.gz")
	case path != "":
		r.say(fmt.Sprintf("%s: wrote %s, but: %v", what, path, err))
	default:
		r.say(fmt.Sprintf("%s: %v", what, err))
	}
}

func (r *oomRecorder) say(text string) {
	wipe := ""
	if terminal.Is(r.stderr) {
		wipe = terminal.Wipe // there may be a progress line
	}
	fmt.Fprintf(r.stderr, "%svramprof: %s\n", wipe, untrusted.Clean(text))
}

// end waits until the records are written, but none is begun after oomEndWait. It returns warnings
// about errors without a record. It may be called several times, and on nil.
func (r *oomRecorder) end() (warnings []string) {
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
	if r.lost != nil {
		var by map[uint32]uint64
		lost, by = r.lost()
		for pid, n := range by {
			if r.by[pid] == nil {
				r.by[pid] = &oomCount{pid: pid}
			}
			r.by[pid].missed += n
		}
	}
	text := missedText(r.missed, lost)
	list := oomTexts(r.by)
	r.mu.Unlock()
	if text != "" {
		r.say(text)
		list = append(list, text)
	}
	return list
}

// oomTexts names each process that ran out of memory: "process 42 (train) ran out of memory 590
// times: 3 recorded".
func oomTexts(by map[uint32]*oomCount) (texts []string) {
	list := slices.SortedFunc(maps.Values(by), func(a, b *oomCount) int {
		return cmp.Or(cmp.Compare(min(b.recorded, 1), min(a.recorded, 1)), cmp.Compare(b.missed, a.missed), cmp.Compare(a.pid, b.pid))
	})
	for _, x := range list[:min(len(list), maxOOMTold)] {
		who, times := fmt.Sprintf("process %d", x.pid), "once"
		if x.comm != "" {
			who += fmt.Sprintf(" (%s)", x.comm)
		}
		if n := x.recorded + x.missed; n > 1 {
			times = fmt.Sprintf("%d times", n)
		}
		texts = append(texts, fmt.Sprintf("%s ran out of memory %s: %d recorded", who, times, x.recorded))
	}
	if more := len(list) - maxOOMTold; more > 0 {
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

// oomSource provides the content of a record.
type oomSource struct {
	nvml     gpuusage.NVML                                 // nil without a driver
	snapshot func(books *ledger.Snapshot) *ledger.Snapshot // of books, or as of now if nil
	stacks   callstack.Stacks
	composed func(s *ledger.Snapshot, x report.OOM) // gets what the record is written from; may be nil
}

// content returns the text and the profile of a record. It reads NVML while it takes the snapshot,
// because the process may end soon.
func (s *oomSource) content(o oom.Error) (page, samples []byte, err error) {
	defer func() {
		if r := recover(); r != nil { // a record must not end the session
			err = fmt.Errorf("record an out-of-memory error: internal error: %v", r)
		}
	}()
	x := oomReport(o)
	var wait sync.WaitGroup
	wait.Go(func() { s.readNVML(&x) })
	snapshot := s.snapshot(o.Books)
	for end := time.Now().Add(oomStackWait); o.Stack != 0 && len(s.stacks.Stack(o.Stack)) == 0 && time.Now().Before(end); {
		time.Sleep(oomStackWait / 50)
	}
	if o.AddHolders != nil {
		o.AddHolders(snapshot)
	}
	wait.Wait()
	if s.composed != nil {
		s.composed(snapshot, x)
	}
	var t, p bytes.Buffer
	if err := text.WriteOOM(&t, snapshot, s.stacks, x, report.Options{}, text.Screen{}); err != nil {
		return nil, nil, err
	}
	if err := profile.Write(&p, snapshot, s.stacks); err != nil {
		return nil, nil, err
	}
	return t.Bytes(), p.Bytes(), nil
}

func oomReport(o oom.Error) report.OOM {
	return report.OOM{
		PID: o.PID, Comm: o.Comm, Time: o.Time, Stack: o.Stack, API: o.API, Kind: o.Kind, Device: o.Device,
		Size: o.Size, Allocated: o.Allocated, Reserved: o.Reserved,
	}
}

func (s *oomSource) readNVML(x *report.OOM) {
	if s.nvml == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), oomNVMLWait)
	defer cancel()
	usage, err := s.nvml.Usage(ctx)
	if err != nil && len(usage) == 0 {
		return
	}
	x.Read, x.Usage = clock.Now(), usage
	x.GPUs, _ = s.nvml.GPUs(ctx)
	x.Names = map[uint32]string{}
	for _, u := range usage[:min(len(usage), maxOOMUsers)] {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", u.PID)); err == nil {
			x.Names[u.PID] = strings.TrimSpace(string(comm))
		}
	}
}

// oomDir returns the folder for records: --oom-dir, or else other; "" for none.
func oomDir(c *cli.Context, other string) (string, error) {
	switch dir := c.String("oom-dir"); {
	case !c.IsSet("oom-dir") && c.Bool("no-oom"):
		return "", nil
	case !c.IsSet("oom-dir"):
		return other, nil
	case c.Bool("no-oom"):
		return "", fault.Usage(errors.New("use only one of --oom-dir and --no-oom"))
	case dir == "" && other != "":
		return "", fault.Usage(errors.New("--oom-dir is empty (--no-oom writes no records)"))
	case dir == "":
		return "", fault.Usage(errors.New("--oom-dir is empty"))
	default:
		return dir, nil
	}
}

func (s *session) oomBooks(books *ledger.Snapshot) *ledger.Snapshot {
	if books == nil {
		return s.snapshot()
	}
	return s.warned(books)
}

// recordOOMs makes the session write a record of each out-of-memory error into dir, unless dir is
// "".
func (s *session) recordOOMs(c *cli.Context, dir string) error {
	if dir == "" {
		return nil
	}
	open, err := openFolder(dir)
	if err == unix.ENOTDIR {
		err = errors.New("not a directory")
	}
	if err != nil {
		return fault.New(fault.Failed, fmt.Errorf("write to %s: %w", dir, err))
	}
	files := output.NewRecords(open)
	s.ooms = newOOMRecorder(c.App.ErrWriter, func(o oom.Error) (string, error) {
		source := oomSource{nvml: s.config.NVML, snapshot: s.oomBooks, stacks: mine(c, s.tracer)}
		text, profile, err := source.content(o)
		if err != nil {
			return "", err
		}
		return files.Write(o.PID, text, profile)
	})
	s.ooms.lost = func() (uint64, map[uint32]uint64) {
		if s.tracer == nil {
			return 0, nil // opening it failed
		}
		return s.tracer.LostOOMs()
	}
	s.config.OOM = s.ooms.take
	return nil
}
