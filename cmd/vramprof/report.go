// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/replay"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/capture"
)

var views = []string{"summary", "tree", "table", "stats", "timeline", "cache"}

// playedViews need all events of a session, so they need a capture.
var playedViews = []string{"stats", "timeline"}

func reportCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "report",
		Usage:     "show a capture, or trace now, in one of several views",
		UsageText: "vramprof report [OPTIONS] FILE | -p PID | --name REGEX | -a | --connect",
		Description: "FILE is a capture that \"vramprof record -o FILE.vram\" wrote, or an archive: the folder that \"vramprof serve\" writes, /var/lib/vramprof. With -p, --name or -a instead, processes are traced as by record, until Ctrl-C or for --duration. " +
			"Moments are times since the session began (12m30s, plain seconds), begin, peak, end, or times of day ('2026-11-22 03:12', 03:12, 'yesterday 03:12', -2h before the end). Without a moment, an archive is listed.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "view", Value: "summary", Usage: "show `VIEW`: " + strings.Join(views, ", ")},
			&cli.BoolFlag{Name: "all-frames", Usage: "show library frames in trees, not only your own code"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			&cli.StringFlag{Name: "html", Usage: "write a page for the browser into `FILE`; - is stdout"},
			&cli.BoolFlag{Name: "force", Usage: "overwrite FILE"},
			&cli.IntFlag{Name: "top", Aliases: []string{"T"}, Value: 10, Usage: "list at most `N` of each (default: 10)"},
			mineFlag(),
			connectFlag(),
		}, readFlags(), momentFlags(), findFlags(), traceFlags()),
		Action: p.reportSession,
	}
}

func momentFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "at", Usage: "show the `MOMENT` (default: the end)"},
		&cli.StringFlag{Name: "between", Usage: "show what changed between two moments, `A,B`"},
	}
}

func (p *program) reportSession(c *cli.Context) error {
	if !slices.Contains(views, c.String("view")) {
		return fault.Usage(fmt.Errorf("unknown view %q (views: %s)", c.String("view"), strings.Join(views, ", ")))
	}
	if c.Int("top") < 1 {
		return fault.Usage(fmt.Errorf("--top must be at least 1"))
	}
	at, between, err := momentsOf(c)
	if err != nil {
		return err
	}
	if connecting(c) {
		return reportRemote(c)
	}
	if err := checkSource(c); err != nil {
		return err
	}
	var page output.Destination
	if c.IsSet("html") {
		if between != nil {
			return fault.Usage(fmt.Errorf("--html and --between exclude each other (the page shows every interval)"))
		}
		if page, err = output.HTML.Open(c.String("html"), c.Bool("force")); err != nil {
			return err
		}
		defer page.Discard()
	}
	if page != nil && filterOf(c) != (archive.Filter{}) {
		return fault.Usage(errors.New("--html shows all processes, and chooses among them itself (without --process, --pod and --job)"))
	}
	if between != nil && c.String("view") == "cache" {
		return fault.Usage(fmt.Errorf("--view cache shows one moment (--at MOMENT), not an interval"))
	}
	if between != nil && c.Bool("json") && !slices.Contains(playedViews, c.String("view")) {
		return fault.Usage(fmt.Errorf("--between has JSON only for the views %s (vramprof export --between writes a profile of the difference)", strings.Join(playedViews, " and ")))
	}
	if path := c.Args().First(); c.Args().Len() == 1 && source.IsArchive(path) {
		return p.reportArchive(c, path, at, between, page)
	}
	r, done, err := p.openSource(c)
	if err != nil {
		return err
	}
	defer done()
	switch {
	case page != nil:
		return writePage(c, r, page)
	case between != nil:
		return writeBetween(c, r, *between)
	}
	return writeView(c, r, at)
}

// momentsOf reads --at and --between.
func momentsOf(c *cli.Context) (at source.Moment, between *[2]source.Moment, err error) {
	if c.IsSet("at") && c.IsSet("between") {
		return at, nil, fault.Usage(fmt.Errorf("use only one of --at and --between"))
	}
	if c.IsSet("between") {
		from, to, err := source.ParseInterval(c.String("between"))
		if err != nil {
			return at, nil, fault.Usage(err)
		}
		return at, &[2]source.Moment{from, to}, nil
	}
	if at, err = source.ParseMoment(c.String("at")); err != nil {
		return at, nil, fault.Usage(err)
	}
	return at, nil, nil
}

func viewOptions(c *cli.Context) report.Options {
	return report.Options{Top: c.Int("top"), AllFrames: c.Bool("all-frames")}
}

func writeView(c *cli.Context, r *capture.Reader, at source.Moment) error {
	end, err := at.In(r)
	if err != nil {
		return err
	}
	view := json.View{Name: c.String("view"), Stacks: mine(c, r)}
	if slices.Contains(playedViews, view.Name) {
		view.Snapshot, view.Timeline, view.Sizes, err = replay.Timeline(r, replay.First(r), end)
	} else {
		view.Snapshot, err = r.Snapshot(end)
	}
	if err != nil {
		return err
	}
	if view.Snapshot, err = onlyChosen(c, view); err != nil {
		return err
	}
	return printView(c, view, viewOptions(c))
}

func printView(c *cli.Context, view json.View, o report.Options) error {
	if c.Bool("json") {
		return json.WriteView(c.App.Writer, view, o)
	}
	s, st := view.Snapshot, view.Stacks
	switch view.Name {
	case "tree":
		return text.WriteTree(c.App.Writer, s, st, o, terminal.Screen())
	case "table":
		return text.WriteTable(c.App.Writer, s, st, o, terminal.Screen())
	case "stats":
		return text.WriteStats(c.App.Writer, s, view.Sizes, st, o, terminal.Screen())
	case "cache":
		return text.WriteCache(c.App.Writer, s, st, o, terminal.Screen())
	case "timeline":
		return text.WriteTimeline(c.App.Writer, s, view.Timeline, st, o, terminal.Screen())
	}
	return text.WriteSummary(c.App.Writer, s, st, report.Options{Top: min(c.Int("top"), 5), Job: c.IsSet("job")}, terminal.Screen())
}

// writeBetween writes a view of an interval. The summary is the lines that changed most.
func writeBetween(c *cli.Context, r *capture.Reader, between [2]source.Moment) error {
	from, to, err := source.Interval(r, between)
	if err != nil {
		return err
	}
	view, o := json.View{Name: c.String("view"), Stacks: mine(c, r)}, viewOptions(c)
	if view.Name != "summary" {
		if filterOf(c) != (archive.Filter{}) {
			return fault.Usage(errors.New("--between with --process, --pod or --job has only --view summary"))
		}
		if o.Since, err = r.Snapshot(from); err != nil {
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
		return printView(c, view, o)
	}
	profiles, err := profilesOf(c, r, from, to)
	if err != nil {
		return err
	}
	names := [2]string{between[0].String(), between[1].String()}
	return text.WriteDiff(c.App.Writer, profile.Diff(profiles[0], profiles[1]), names, o, terminal.Screen())
}

func profilesOf(c *cli.Context, r *capture.Reader, from, to uint64) (profiles [2]profile.Profile, err error) {
	st := mine(c, r)
	for i, at := range []uint64{from, to} {
		s, err := r.Snapshot(at)
		if err == nil {
			s, err = source.Only(s, filterOf(c))
		}
		if err != nil {
			return profiles, err
		}
		profiles[i] = profile.New(s, st).Mine(mineOf(c))
	}
	return profiles, nil
}

func writePage(c *cli.Context, r *capture.Reader, page output.Destination) error {
	write, err := output.HTML.Prepare(output.Session{Capture: r, At: r.End(), Stacks: mine(c, r)})
	if err != nil {
		return err
	}
	err = page.Save(write, "vramprof-report"+output.HTML.Suffix)
	if err == nil {
		sayWrote(c, page)
	}
	return err
}
