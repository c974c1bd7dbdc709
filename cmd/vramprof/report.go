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
	"github.com/vramprof/vramprof/internal/views"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/capture"
)

func reportCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "report",
		Usage:     "show a capture, or trace now, in one of several views",
		UsageText: "vramprof report [OPTIONS] FILE | -p PID | --name REGEX | -a | --connect",
		Description: "FILE is a capture that \"vramprof record -o FILE.vram\" wrote, a memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot), or an archive: the folder that \"vramprof serve\" writes, /var/lib/vramprof. With -p, --name or -a instead, processes are traced as by record, until Ctrl-C or for --duration. " +
			"Moments are times since the session began (12m30s, plain seconds), begin, peak, end, step:41 of a training, or times of day ('2026-11-22 03:12', 03:12, 'yesterday 03:12', -2h before the end). Without a moment, an archive is listed.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "view", Value: "summary", Usage: "show `VIEW`: " + strings.Join(views.All, ", ")},
			&cli.BoolFlag{Name: "all-frames", Usage: "show library frames in trees, not only your own code"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			&cli.StringFlag{Name: "html", Usage: "write a page for the browser into `FILE`; - is stdout"},
			&cli.BoolFlag{Name: "force", Usage: "overwrite FILE"},
			&cli.IntFlag{Name: "top", Aliases: []string{"T"}, Value: 10, Usage: "list at most `N` of each (default: 10)"},
			mineFlag(),
			connectFlag(insteadOfTracing),
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
	if !slices.Contains(views.All, c.String("view")) {
		return fault.Usage(fmt.Errorf("unknown view %q (views: %s)", c.String("view"), strings.Join(views.All, ", ")))
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
	if between != nil && c.Bool("json") && !slices.Contains(views.Played, c.String("view")) {
		return fault.Usage(fmt.Errorf("--between has JSON only for the views %s (vramprof export --between writes a profile of the difference)", strings.Join(views.Played, " and ")))
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
		return viewsOf(c).Between(r, *between)
	}
	return viewsOf(c).Moment(r, at)
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

// viewsOf reads what is shown, and how.
func viewsOf(c *cli.Context) views.Options {
	return views.Options{
		View: c.String("view"), JSON: c.Bool("json"), Top: c.Int("top"), AllFrames: c.Bool("all-frames"), Job: c.IsSet("job"),
		Only: filterOf(c), Mine: mineOf(c), Files: sourceOptions(c), Out: c.App.Writer,
	}
}

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
		return viewsOf(c).Moment(r, at)
	}
	a, err := source.OpenArchive(path)
	if err != nil {
		return err
	}
	if between != nil {
		return viewsOf(c).ArchiveBetween(a, *between, c.String("between"))
	}
	return viewsOf(c).Archive(a)
}
