// SPDX-License-Identifier: Apache-2.0

// Package views shows captures, archives and the books of a running session, as vramprof report
// does.
package views

import (
	"errors"
	"io"
	"regexp"
	"slices"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/replay"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// All are the views, and Played those that need all events of a session, so a capture.
var (
	All    = []string{"summary", "tree", "table", "stats", "timeline", "cache"}
	Played = []string{"stats", "timeline"}
)

// Options choose what is shown, and how.
type Options struct {
	View      string
	JSON      bool
	Top       int
	AllFrames bool
	Job       bool // a batch job was asked for
	Only      archive.Filter
	Mine      *regexp.Regexp // your own code; nil: all but libraries
	Files     source.Options
	Out       io.Writer
}

func (o Options) options() report.Options { return report.Options{Top: o.Top, AllFrames: o.AllFrames} }

// Moment shows a moment of a capture.
func (o Options) Moment(r *capture.Reader, at source.Moment) error {
	end, err := at.In(r)
	if err != nil {
		return err
	}
	view := json.View{Name: o.View, Stacks: frames.Mine(r, o.Mine)}
	if slices.Contains(Played, view.Name) {
		view.Snapshot, view.Timeline, view.Sizes, err = replay.Timeline(r, replay.First(r), end)
	} else {
		view.Snapshot, err = r.Snapshot(end)
	}
	if err != nil {
		return err
	}
	shown := o.options()
	if view.Name == "summary" {
		if shown.Steps, err = replay.Steps(r, view.Snapshot, replay.BriefEvents); err != nil {
			return err
		}
		if shown.Peaks, err = replay.Peaks(r, view.Snapshot); err != nil {
			return err
		}
	}
	if view.Snapshot, err = o.chosen(view); err != nil {
		return err
	}
	if view.Name == "summary" && !o.JSON {
		if shown.Peak, err = o.peakOf(r, view.Snapshot); err != nil {
			return err
		}
	}
	return o.print(view, shown)
}

// peakOf returns the moment of the highest peak where all processes have ended, else nil: what they
// have left at the end says nothing of what they used memory for.
func (o Options) peakOf(r *capture.Reader, s *ledger.Snapshot) (*ledger.Snapshot, error) {
	if !report.AllEnded(s) {
		return nil, nil
	}
	peak, err := r.Snapshot(report.HighestPeaks(s)[0].Time)
	if err != nil {
		return nil, err
	}
	return source.Only(peak, o.Only)
}

// Print shows a view.
func (o Options) Print(view json.View) error { return o.print(view, o.options()) }

func (o Options) print(view json.View, shown report.Options) error {
	if o.JSON {
		return json.WriteView(o.Out, view, shown)
	}
	s, st := view.Snapshot, view.Stacks
	switch view.Name {
	case "tree":
		return text.WriteTree(o.Out, s, st, shown, terminal.Screen())
	case "table":
		return text.WriteTable(o.Out, s, st, shown, terminal.Screen())
	case "stats":
		return text.WriteStats(o.Out, s, view.Sizes, st, shown, terminal.Screen())
	case "cache":
		return text.WriteCache(o.Out, s, st, shown, terminal.Screen())
	case "timeline":
		return text.WriteTimeline(o.Out, s, view.Timeline, st, shown, terminal.Screen())
	}
	return text.WriteSummary(o.Out, s, st, report.Options{Top: min(o.Top, 5), Job: o.Job, Steps: shown.Steps, Peak: shown.Peak, Peaks: shown.Peaks}, terminal.Screen())
}

// Between writes a view of an interval. The summary is the lines that changed most.
func (o Options) Between(r *capture.Reader, between [2]source.Moment) error {
	from, to, err := source.Interval(r, between)
	if err != nil {
		return err
	}
	view, shown := json.View{Name: o.View, Stacks: frames.Mine(r, o.Mine)}, o.options()
	if view.Name != "summary" {
		if o.Only != (archive.Filter{}) {
			return fault.Usage(errors.New("--between with --process, --pod or --job has only --view summary"))
		}
		if shown.Since, err = r.Snapshot(from); err != nil {
			return err
		}
		switch view.Name {
		case "stats":
			view.Snapshot, view.Sizes, err = replay.Sizes(r, from, to)
		case "timeline":
			view.Snapshot, view.Timeline, _, err = replay.Timeline(r, from, to)
		default:
			view.Snapshot, err = r.Snapshot(to)
		}
		if err != nil {
			return err
		}
		return o.print(view, shown)
	}
	profiles, err := o.Profiles(r, from, to)
	if err != nil {
		return err
	}
	names := [2]string{between[0].String(), between[1].String()}
	return text.WriteDiff(o.Out, profile.Diff(profiles[0], profiles[1]), names, shown, terminal.Screen())
}

// Profiles returns the profiles of two times.
func (o Options) Profiles(r *capture.Reader, from, to uint64) (profiles [2]profile.Profile, err error) {
	st := frames.Mine(r, o.Mine)
	for i, at := range []uint64{from, to} {
		s, err := r.Snapshot(at)
		if err == nil {
			s, err = source.Only(s, o.Only)
		}
		if err != nil {
			return profiles, err
		}
		profiles[i] = profile.New(s, st).Mine(o.Mine)
	}
	return profiles, nil
}
