// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func compareCommand() *cli.Command {
	return &cli.Command{
		Name:      "compare",
		Usage:     "put ranks, captures or moments side by side, and name who is odd",
		UsageText: "vramprof compare [OPTIONS] FILE...",
		Description: "Each FILE is a capture, or a profile that vramprof wrote. One capture is compared by its processes, such as the ranks of a training; " +
			"several files by file. A row is a line of your own code, a column a process or file. FILE@MOMENT is a moment of a capture: run.vram@5m, run.vram@peak. " +
			"By default, the ends are compared, or where a process ended before its session, the peaks.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "at", Usage: "compare the `MOMENT`: 12m30s, peak (each column's own), end"},
			&cli.StringFlag{Name: "by", Usage: "a column for each `WHAT`: process or file (default: process for one file)"},
			&cli.IntFlag{Name: "top", Aliases: []string{"T"}, Value: 10, Usage: "list at most `N` lines (default: 10)"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			mineFlag(), readFlags()[0],
		},
		Action: compareFiles,
	}
}

// By what compare makes columns.
const (
	byProcess = "process"
	byFile    = "file"
)

func compareFiles(c *cli.Context) error {
	by := c.String("by")
	switch {
	case c.Args().Len() == 0:
		return fault.Usage(errors.New("name captures to compare, or one of several processes (vramprof compare rank0.vram rank1.vram)"))
	case c.IsSet("by") && by != byProcess && by != byFile:
		return fault.Usage(fmt.Errorf("--by is process or file, not %q", by))
	case c.Int("top") < 1:
		return fault.Usage(errors.New("--top must be at least 1"))
	case by == "" && c.Args().Len() == 1:
		by = byProcess
	case by == "":
		by = byFile
	}
	var list []*comparedFile
	defer func() {
		for _, f := range list {
			f.done()
		}
	}()
	for _, name := range c.Args().Slice() {
		f, err := openCompared(c, name, by)
		if err != nil {
			return err
		}
		list = append(list, f)
	}
	columns, err := columnsOf(c, list, by)
	if err != nil {
		return err
	}
	if len(columns) < 2 {
		return fault.Usage(fmt.Errorf("%s has GPU memory of %s: name another capture, or two moments of it (%s@5m %s@end)",
			list[0].path, format.Count(uint64(len(columns)), "process"), list[0].path, list[0].path))
	}
	comparison := report.Compare(columns)
	if c.Bool("json") {
		return json.WriteComparison(c.App.Writer, comparison)
	}
	return text.WriteComparison(c.App.Writer, comparison, report.Options{Top: c.Int("top")}, terminal.Screen())
}

// comparedFile is a file to compare, with its state at the end.
type comparedFile struct {
	path    string
	at      source.Moment
	given   bool           // the command line names the moment
	profile *report.Column // nil for a capture
	reader  *capture.Reader
	last    *ledger.Snapshot
	done    func()
}

// openCompared opens a capture or profile, "run.vram@peak".
func openCompared(c *cli.Context, name, by string) (*comparedFile, error) {
	path, at := source.SplitMoment(name)
	f := &comparedFile{path: path, given: at != "" || c.IsSet("at"), done: func() {}}
	if at == "" {
		at = c.String("at")
	}
	var err error
	if f.at, err = source.ParseMoment(at); err != nil {
		return nil, fault.Usage(err)
	}
	p, isProfile, err := sourceOptions(c).Profile(path)
	switch {
	case err != nil:
		return nil, err
	case isProfile && f.given:
		return nil, fault.Usage(fmt.Errorf("%s is a profile, which has only one moment (remove %s)", path, at))
	case isProfile && by == byProcess:
		return nil, fault.Usage(fmt.Errorf("%s is a profile, which is compared by file (name a second file)", path))
	case isProfile:
		column := p.Mine(mineOf(c)).Column()
		column.File, f.profile = path, &column
		return f, nil
	}
	if f.reader, f.done, err = sourceOptions(c).Open(path, &f.at); err != nil {
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
func (f *comparedFile) ended(by string) bool {
	if f.last == nil {
		return false
	}
	n := 0
	users, _ := report.Users(f.last)
	for _, i := range users {
		if f.last.Processes[i].End != 0 {
			n++
		}
	}
	return n > 0 && (by == byProcess || n == len(users))
}

// columnsOf returns the columns of all files. Where no moment was asked for and one of them ended
// before its session, all are shown at their peak: an end and a peak cannot be compared.
func columnsOf(c *cli.Context, list []*comparedFile, by string) (columns []report.Column, err error) {
	peak := false
	for _, f := range list {
		peak = peak || !f.given && f.ended(by)
	}
	for _, f := range list {
		if f.profile != nil {
			columns = append(columns, *f.profile)
			continue
		}
		if peak && !f.given {
			f.at = source.Peak()
		}
		these, err := f.columns(c, by)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		columns = append(columns, these...)
	}
	return columns, nil
}

// columns returns the column of a capture, or one for each of its processes.
func (f *comparedFile) columns(c *cli.Context, by string) ([]report.Column, error) {
	of := []int{-1}
	if by == byProcess {
		var others int
		if of, others = report.Users(f.last); others > 0 {
			fmt.Fprintf(c.App.ErrWriter, "vramprof: %s: %d processes with less GPU memory than the first %d are not compared\n", untrusted.Clean(f.path), others, len(of))
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
	columns := f.columnsAt(snapshots, of, times, mine(c, f.reader))
	for i := range columns {
		columns[i].File, columns[i].Moment = f.path, f.at.String()
	}
	return columns, nil
}

// columnsAt returns the columns of processes at times, without those that began later. Process -1
// means all.
func (f *comparedFile) columnsAt(snapshots map[uint64]*ledger.Snapshot, of []int, times []uint64, st callstack.Stacks) (columns []report.Column) {
	if len(of) == 1 && of[0] < 0 {
		return []report.Column{report.NewColumn(snapshots[times[0]], st)}
	}
	for i := 0; i < len(of); { // processes at one time together
		s, at := snapshots[times[i]], times[i]
		var these []int
		for ; i < len(of) && times[i] == at; i++ {
			if process := sameProcess(s, &f.last.Processes[of[i]]); process >= 0 {
				these = append(these, process)
			}
		}
		columns = append(columns, report.NewColumns(s, st, these)...)
	}
	return columns
}

// snapshotsAt returns snapshots of several times, by time, and plays the capture at most once.
func (f *comparedFile) snapshotsAt(times []uint64) (map[uint64]*ledger.Snapshot, error) {
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
