// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/tracer/capture"
)

const noLimits = "no-limits"

func readFlags() []cli.Flag {
	return []cli.Flag{&cli.BoolFlag{Name: noLimits, Usage: "read a capture without limits on memory and time (only if you trust it)"}}
}

// checkSource returns an error if the command line names neither a capture nor processes: only
// commands whose name says so trace the whole machine by default.
func checkSource(c *cli.Context) error {
	if c.Args().Present() || c.IsSet("pid") || c.IsSet("name") || c.Bool("all") {
		return nil
	}
	return fault.Usage(fmt.Errorf("name a capture, or processes to trace: -p PID, --name REGEX, or -a for all (vramprof %s run.vram)", c.Command.Name))
}

// withoutCapture returns an error if one of the flags is set, which need a capture. The error ends
// with why there is none.
func withoutCapture(c *cli.Context, why string, flags ...string) error {
	for _, name := range flags {
		if c.IsSet(name) {
			return fault.Usage(fmt.Errorf("--%s needs a capture%s", name, why))
		}
	}
	return nil
}

// openSource opens the capture that the command line names, or traces now into a file without a
// name. In an archive it finds the capture that has all of the moments, and where they are in it.
func (p *program) openSource(c *cli.Context, moments ...*source.Moment) (r *capture.Reader, done func(), err error) {
	if !c.Args().Present() {
		return p.recordNow(c)
	}
	if c.Args().Len() > 1 {
		return nil, nil, fault.Usage(fmt.Errorf("unexpected argument %q", c.Args().Get(1)))
	}
	for _, f := range traceFlags() {
		name := f.Names()[0]
		means := name == "pid" && c.Command.Name == "export" || name == "verbose" && c.Command.Name == "leaks"
		if c.IsSet(name) && !means {
			return nil, nil, fault.Usage(fmt.Errorf("--%s is only for tracing, and %q is a capture", name, c.Args().First()))
		}
	}
	return sourceOptions(c).Open(c.Args().First(), moments...)
}

// sourceOptions reads how files are read.
func sourceOptions(c *cli.Context) source.Options {
	return source.Options{Unlimited: c.Bool(noLimits), Stderr: c.App.ErrWriter}
}

// recordNow traces like record, into a file without a name.
func (p *program) recordNow(c *cli.Context) (r *capture.Reader, done func(), err error) {
	s, err := p.newSession(c)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	if len(s.Trace.Command) > 0 {
		return nil, nil, fault.Usage(fmt.Errorf("%s takes a capture or processes, not a command (vramprof record -o FILE.vram -- COMMAND)", c.Command.Name))
	}
	file, err := output.Temporary()
	if err != nil {
		return nil, nil, err
	}
	done = func() { file.Close() }
	if r, err = s.RunIntoFile(c.Context, file); err != nil {
		done()
		return nil, nil, err
	}
	return r, done, nil
}
