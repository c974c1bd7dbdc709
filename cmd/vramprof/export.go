// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/tracer/capture"
)

func exportCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "convert a capture, or trace now, for other tools",
		UsageText: "vramprof export [OPTIONS] FILE | -p PID | --name REGEX | -a | --connect",
		Description: "FILE is a capture that \"vramprof record -o FILE.vram\" wrote, or a memory snapshot of PyTorch. With -p, --name or -a instead, processes are traced as by record. Formats: " +
			output.Exported.About() + ".",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "format", Aliases: []string{"f"}, Value: output.Pprof.Name, Usage: "`FORMAT`: " + output.Exported.Choice()},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE` (default: named after the capture); - is stdout"},
			&cli.BoolFlag{Name: "force", Usage: "overwrite FILE"},
			mineFlag(),
			connectFlag(insteadOfTracing),
		}, readFlags(), momentFlags(), traceFlags()),
		Action: p.exportSession,
	}
}

func (p *program) exportSession(c *cli.Context) error {
	format, err := output.Exported.Find(c.String("format"))
	if err != nil {
		return fault.Usage(err)
	}
	at, between, err := momentsOf(c)
	if err != nil {
		return err
	}
	if between != nil && format.WriteDifference == nil {
		able := output.Exported.Only(func(f output.Format) bool { return f.WriteDifference != nil })
		return fault.Usage(fmt.Errorf("--between needs --format %s", able.Choice()))
	}
	if !connecting(c) {
		err = checkSource(c)
	}
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(c.Args().First()), output.Capture.Suffix) + format.Suffix
	if !c.Args().Present() {
		name = output.DefaultName(time.Now()) + format.Suffix
	}
	path := c.String("output")
	if path == "" {
		path = name
	}
	out, err := format.Open(path, c.Bool("force"))
	if err != nil {
		return err
	}
	defer out.Discard()
	var write func(io.Writer) error
	if connecting(c) {
		write, err = exportRemote(c, format)
	} else {
		var r *capture.Reader
		var done func()
		if r, done, err = p.openSource(c, momentList(&at, between)...); err == nil {
			defer done()
			write, err = exporter(c, r, format, at, between)
		}
	}
	if err != nil {
		return err
	}
	if err := out.Save(write, name); err != nil {
		return err
	}
	sayWrote(c, out)
	return nil
}

// exporter does everything that can fail before anything is written, and returns the function that
// writes.
func exporter(c *cli.Context, r *capture.Reader, format output.Format, at source.Moment, between *[2]source.Moment) (func(io.Writer) error, error) {
	if between != nil {
		from, to, err := source.Interval(r, *between)
		if err != nil {
			return nil, err
		}
		profiles, err := viewsOf(c).Profiles(r, from, to)
		return func(w io.Writer) error { return format.WriteDifference(w, profiles[0], profiles[1]) }, err
	}
	end, err := at.In(r)
	if err != nil {
		return nil, err
	}
	s := output.Session{Capture: r, At: end, Stacks: mine(c, r)}
	if pids := c.StringSlice("pid"); format.OneProcess && len(pids) > 0 {
		pid, err := strconv.ParseUint(pids[0], 10, 31)
		if err != nil || len(pids) > 1 {
			return nil, fault.Usage(fmt.Errorf("--format %s takes one process id", format.Name))
		}
		s.PID = uint32(pid)
	}
	return format.Prepare(s)
}

// momentList returns the moments that a command line names.
func momentList(at *source.Moment, between *[2]source.Moment) []*source.Moment {
	if between != nil {
		return []*source.Moment{&between[0], &between[1]}
	}
	return []*source.Moment{at}
}
