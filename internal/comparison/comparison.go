// SPDX-License-Identifier: Apache-2.0

// Package comparison puts captures and profiles side by side.
package comparison

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// By what columns are made.
const (
	ByProcess = "process"
	ByFile    = "file"
)

// Options choose what is compared.
type Options struct {
	By    string         // ByProcess or ByFile
	At    string         // moment of the files that name none
	Given bool           // At is given
	Mine  *regexp.Regexp // your own code; nil: all but libraries
	Files source.Options
}

// Columns returns the columns of files, "run.vram@peak". There are at least two.
func Columns(names []string, o Options) ([]compare.Column, error) {
	var list []*file
	defer func() {
		for _, f := range list {
			f.done()
		}
	}()
	for _, name := range names {
		f, err := open(name, o)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	columns, err := columnsOf(list, o)
	if err == nil && len(columns) < 2 {
		path := list[0].path
		err = fault.Usage(fmt.Errorf("%s has GPU memory of %s: name another capture, or two moments of it (%s@5m %s@end)", path, format.Count(uint64(len(columns)), "process"), path, path))
	}
	return columns, err
}

// file is a file to compare, with its state at the end.
type file struct {
	path    string
	at      source.Moment
	given   bool            // the command line names the moment
	profile *compare.Column // nil for a capture
	reader  *capture.Reader
	last    *ledger.Snapshot
	done    func()
}

// open opens a capture or profile, "run.vram@peak".
func open(name string, o Options) (*file, error) {
	path, at := source.SplitMoment(name)
	f := &file{path: path, given: at != "" || o.Given, done: func() {}}
	if at == "" {
		at = o.At
	}
	var err error
	if f.at, err = source.ParseMoment(at); err != nil {
		return nil, fault.Usage(err)
	}
	p, isProfile, err := o.Files.Profile(path)
	switch {
	case err != nil:
		return nil, err
	case isProfile && f.given:
		return nil, fault.Usage(fmt.Errorf("%s is a profile, which has only one moment (remove %s)", path, at))
	case isProfile && o.By == ByProcess:
		return nil, fault.Usage(fmt.Errorf("%s is a profile, which is compared by file (name a second file)", path))
	case isProfile:
		column := p.Mine(o.Mine).Column()
		column.File, f.profile = path, &column
		return f, nil
	}
	if f.reader, f.done, err = o.Files.Open(path, &f.at); err != nil {
		return nil, err
	}
	if f.last, err = f.reader.Snapshot(f.reader.End()); err != nil {
		f.done()
		return nil, err
	}
	return f, nil
}

// ended reports whether the end of a capture shows nothing of its processes: one has ended, where
// each is a column, or all.
func (f *file) ended(by string) bool {
	if f.last == nil {
		return false
	}
	n := 0
	users, _ := compare.Users(f.last)
	for _, i := range users {
		if f.last.Processes[i].End != 0 {
			n++
		}
	}
	return n > 0 && (by == ByProcess || n == len(users))
}

// columnsOf returns the columns of all files. Where no moment was asked for and one of them ended
// before its session, all are shown at their peak: an end and a peak cannot be compared.
func columnsOf(list []*file, o Options) (columns []compare.Column, err error) {
	peak := false
	for _, f := range list {
		peak = peak || !f.given && f.ended(o.By)
	}
	for _, f := range list {
		if f.profile != nil {
			columns = append(columns, *f.profile)
			continue
		}
		if peak && !f.given {
			f.at = source.Peak()
		}
		these, err := f.columns(o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		columns = append(columns, these...)
	}
	return columns, nil
}

// columns returns the column of a capture, or one for each of its processes.
func (f *file) columns(o Options) ([]compare.Column, error) {
	of := []int{-1}
	if o.By == ByProcess {
		var others int
		if of, others = compare.Users(f.last); others > 0 {
			fmt.Fprintf(o.Files.Stderr, "vramprof: %s: %d processes with less GPU memory than the first %d are not compared\n", untrusted.Clean(f.path), others, len(of))
		}
	}
	times := make([]uint64, len(of))
	for i, process := range of {
		var err error
		if f.at.IsPeak() {
			var ok bool
			if times[i], ok = report.PeakTimeOf(f.last, process); !ok { // it has only a context
				times[i] = f.reader.End()
			}
		} else {
			times[i], err = f.at.In(f.reader)
		}
		if err != nil {
			return nil, err
		}
	}
	snapshots, err := f.snapshotsAt(times)
	if err != nil {
		return nil, err
	}
	columns := f.columnsAt(snapshots, of, times, frames.Mine(f.reader, o.Mine))
	for i := range columns {
		columns[i].File, columns[i].Moment = f.path, f.at.String()
	}
	return columns, nil
}

// columnsAt returns the columns of processes at times, without those that began later. Process -1
// means all.
func (f *file) columnsAt(snapshots map[uint64]*ledger.Snapshot, of []int, times []uint64, st callstack.Stacks) (columns []compare.Column) {
	if len(of) == 1 && of[0] < 0 {
		return []compare.Column{compare.NewColumn(snapshots[times[0]], st)}
	}
	for i := 0; i < len(of); { // processes at one time together
		s, at := snapshots[times[i]], times[i]
		var these []int
		for ; i < len(of) && times[i] == at; i++ {
			if process := sameProcess(s, &f.last.Processes[of[i]]); process >= 0 {
				these = append(these, process)
			}
		}
		columns = append(columns, compare.NewColumns(s, st, these)...)
	}
	return columns
}

// snapshotsAt returns snapshots of several times, by time, and plays the capture at most once.
func (f *file) snapshotsAt(times []uint64) (map[uint64]*ledger.Snapshot, error) {
	list := map[uint64]*ledger.Snapshot{}
	l, player := f.reader.NewLedger(), f.reader.Player()
	for _, at := range slices.Compact(slices.Sorted(slices.Values(times))) {
		if at >= f.reader.End() {
			list[at] = f.last
			continue
		}
		if err := player.PlayTo(at, l); err != nil {
			return nil, err
		}
		list[at] = f.reader.SnapshotOf(l, at)
	}
	return list, nil
}

// sameProcess returns the index of a process in an earlier snapshot of its session, or -1.
func sameProcess(s *ledger.Snapshot, p *ledger.Process) int {
	return slices.IndexFunc(s.Processes, func(q ledger.Process) bool { return q.PID == p.PID && q.Begin == p.Begin })
}
