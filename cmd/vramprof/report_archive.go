// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func findFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "process", Usage: "show only the process `PID|NAME`"},
		&cli.StringFlag{Name: "pod", Usage: "show only processes of the Kubernetes `POD`: NAME or NAMESPACE/NAME"},
		&cli.StringFlag{Name: "job", Usage: "show only processes of the batch job `JOB`: its number or its name"},
	}
}

// filterOf returns which processes --process, --pod and --job choose.
func filterOf(c *cli.Context) archive.Filter {
	return archive.Filter{Process: c.String("process"), Pod: c.String("pod"), Job: c.String("job")}
}

// reportArchive shows a moment of an archive, what changed between two, or what is in it.
func (p *program) reportArchive(c *cli.Context, path string, at source.Moment, between *[2]source.Moment, page output.Destination) error {
	if between == nil && (c.IsSet("at") || c.IsSet("view") || page != nil) {
		r, done, err := p.openSource(c, &at)
		if err != nil {
			return err
		}
		defer done()
		if page != nil {
			return writePage(c, r, page)
		}
		return writeView(c, r, at)
	}
	a, err := source.OpenArchive(path)
	if err != nil {
		return err
	}
	if between != nil {
		return archiveBetween(c, a, *between)
	}
	overview := source.Overview(a, filterOf(c))
	if c.Bool("json") {
		return json.WriteArchive(c.App.Writer, overview)
	}
	return text.WriteArchive(c.App.Writer, overview, report.Options{Top: c.Int("top")}, terminal.Screen())
}

// archiveBetween writes what changed between two moments, which may be in different captures.
func archiveBetween(c *cli.Context, a *archive.Archive, between [2]source.Moment) error {
	var found [2]archive.Moment
	for i := range between {
		var err error
		if found[i], err = between[i].InArchive(a); err != nil {
			return fmt.Errorf("%s: %w", untrusted.Clean(a.Dir()), err)
		}
	}
	if !found[0].Wall.Before(found[1].Wall) {
		return fault.Usage(source.Reversed(c.String("between"), between[0], between[1]))
	}
	if found[0].Capture == found[1].Capture {
		r, done, err := sourceOptions(c).Capture(found[0].Capture.Path)
		if err != nil {
			return err
		}
		defer done()
		between = [2]source.Moment{source.Found(found[0]), source.Found(found[1])}
		return writeBetween(c, r, between)
	}
	if c.String("view") != "summary" {
		return fault.Usage(fmt.Errorf("the moments are in different captures of the archive, between which only --view summary shows what changed"))
	}
	var profiles [2]profile.Profile
	for i, m := range found {
		r, done, err := sourceOptions(c).Capture(m.Capture.Path)
		if err != nil {
			return err
		}
		s, err := r.Snapshot(m.Time)
		if err == nil {
			s, err = source.Only(s, filterOf(c))
		}
		if err == nil {
			profiles[i] = profile.New(s, mine(c, r)).Mine(mineOf(c))
		}
		done()
		if err != nil {
			return err
		}
	}
	names := [2]string{source.WallOf(found[0]), source.WallOf(found[1])}
	return text.WriteDiff(c.App.Writer, profile.Diff(profiles[0], profiles[1]), names, viewOptions(c), terminal.Screen())
}

// onlyChosen returns the processes of a view that --process, --pod and --job choose.
func onlyChosen(c *cli.Context, view json.View) (*ledger.Snapshot, error) {
	only := filterOf(c)
	if only == (archive.Filter{}) {
		return view.Snapshot, nil
	}
	if view.Timeline != nil || view.Sizes != nil {
		return nil, fault.Usage(fmt.Errorf("--view %s shows the whole session (without --process, --pod and --job)", view.Name))
	}
	return source.Chosen(view.Snapshot, only)
}
