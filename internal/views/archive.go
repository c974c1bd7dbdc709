// SPDX-License-Identifier: Apache-2.0

package views

import (
	"fmt"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Archive shows what is in an archive.
func (o Options) Archive(a *archive.Archive) error {
	overview := source.Overview(a, o.Only)
	if o.JSON {
		return json.WriteArchive(o.Out, overview)
	}
	return text.WriteArchive(o.Out, overview, report.Options{Top: o.Top}, terminal.Screen())
}

// ArchiveBetween writes what changed between two moments, which may be in different captures;
// asked is what the user named.
func (o Options) ArchiveBetween(a *archive.Archive, between [2]source.Moment, asked string) error {
	var found [2]archive.Moment
	for i := range between {
		var err error
		if found[i], err = between[i].InArchive(a); err != nil {
			return fmt.Errorf("%s: %w", untrusted.Clean(a.Dir()), err)
		}
	}
	if !found[0].Wall.Before(found[1].Wall) {
		return fault.Usage(source.Reversed(asked, between[0], between[1]))
	}
	if found[0].Capture == found[1].Capture {
		r, done, err := o.Files.Capture(found[0].Capture.Path)
		if err != nil {
			return err
		}
		defer done()
		between = [2]source.Moment{source.Found(found[0]), source.Found(found[1])}
		return o.Between(r, between)
	}
	if o.View != "summary" {
		return fault.Usage(fmt.Errorf("the moments are in different captures of the archive, between which only --view summary shows what changed"))
	}
	var profiles [2]profile.Profile
	for i, m := range found {
		r, done, err := o.Files.Capture(m.Capture.Path)
		if err != nil {
			return err
		}
		s, err := r.Snapshot(m.Time)
		if err == nil {
			s, err = source.Only(s, o.Only)
		}
		if err == nil {
			profiles[i] = profile.New(s, frames.Mine(r, o.Mine)).Mine(o.Mine)
		}
		done()
		if err != nil {
			return err
		}
	}
	names := [2]string{source.WallOf(found[0]), source.WallOf(found[1])}
	return text.WriteDiff(o.Out, profile.Diff(profiles[0], profiles[1]), names, o.options(), terminal.Screen())
}

// chosen returns the processes of a view that --process, --pod and --job choose.
func (o Options) chosen(view json.View) (*ledger.Snapshot, error) {
	only := o.Only
	if only == (archive.Filter{}) {
		return view.Snapshot, nil
	}
	if view.Timeline != nil || view.Sizes != nil {
		return nil, fault.Usage(fmt.Errorf("--view %s shows the whole session (without --process, --pod and --job)", view.Name))
	}
	return source.Chosen(view.Snapshot, only)
}
